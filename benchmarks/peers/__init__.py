"""Scripts that run a peer library with the python of an environment of its own; nothing here imports purestep."""

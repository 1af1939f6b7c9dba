"""Child processes and worker pools on this machine."""

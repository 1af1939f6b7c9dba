"""Asynchronous training: messages between generators and the trainer, the checkpointed state, and resuming a run."""

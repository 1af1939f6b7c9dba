"""Weights in shared memory: a ring of versions in one file."""

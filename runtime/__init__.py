"""Execution of steps: compiled rollouts and training, state machines and the loop that runs their commands."""

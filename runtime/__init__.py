"""How steps run: compiled rollouts and training, machines and the loop that performs their commands."""

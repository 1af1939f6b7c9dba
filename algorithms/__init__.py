"""What is learned from steps: estimators, losses and whole algorithms. Pure; imports core."""

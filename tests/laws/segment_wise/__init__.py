"""Laws of segment-wise rollouts."""

"""The reasoning cache: alternating rollouts and summaries, as a `TextTask`."""

"""Laws of simulated workers and effects."""

"""Laws of the core."""

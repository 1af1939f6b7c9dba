"""Laws of logic."""

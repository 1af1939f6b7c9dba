"""Laws of effects."""

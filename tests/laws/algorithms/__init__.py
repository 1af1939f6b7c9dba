"""Laws of algorithms."""

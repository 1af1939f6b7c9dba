"""Laws of the reasoning cache."""

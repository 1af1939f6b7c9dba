"""Laws of worlds of text."""

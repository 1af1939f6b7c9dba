"""Laws of text environments."""

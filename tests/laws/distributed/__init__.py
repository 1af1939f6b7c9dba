"""Laws of learning on several ranks."""

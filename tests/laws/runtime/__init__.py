"""Laws of the runtime."""

"""Laws of the scheduler."""

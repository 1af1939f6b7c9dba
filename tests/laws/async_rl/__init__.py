"""Laws of asynchronous training."""

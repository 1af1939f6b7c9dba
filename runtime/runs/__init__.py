"""A run of any recipe: its loop, its arguments, and the log of its metrics."""

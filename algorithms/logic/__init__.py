"""Losses on knowledge graphs."""

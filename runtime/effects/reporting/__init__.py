"""Metrics, progress lines and pictures."""

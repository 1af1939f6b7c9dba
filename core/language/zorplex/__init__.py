"""Zorplex: arithmetic on made-up words with a tool, as a `TextTask`."""

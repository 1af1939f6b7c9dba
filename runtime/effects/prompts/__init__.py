"""Prompts of a run, from files."""

"""Runs of language models: their components, evaluation and reports."""

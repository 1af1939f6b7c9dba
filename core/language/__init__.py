"""Worlds of text as pure steps: what a completion means, whose turn it is, tasks with tools. No tokenizer and no model."""

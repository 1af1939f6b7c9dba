"""Runs of language models: what they are made of, how they are evaluated, and what is said of them."""

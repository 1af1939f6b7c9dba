"""Losses and updates of language models."""

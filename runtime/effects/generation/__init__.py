"""Batched generation with a Hugging Face model."""

"""Sampling from an OpenAI-compatible server, such as vLLM."""

"""Simulated rollout workers and trainer: a schedule tried without a model or a clock."""

"""Reward functions of users, and built-in ones, for finished attempts at prompts."""

"""Reward functions of users, called on finished attempts."""

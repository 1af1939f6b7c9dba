"""Environments from and for Gymnasium."""

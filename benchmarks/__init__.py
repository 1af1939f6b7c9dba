"""Measurements of purestep beside its peers."""

"""Sides, verdicts and pictures of the programs of the folder above."""

"""Measurements of proving: its speed, its rankings and searches, and how it is built."""

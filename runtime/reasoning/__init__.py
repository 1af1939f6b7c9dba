"""A run of the reasoning cache: its parts, demonstrations, cycles, training and evaluation."""

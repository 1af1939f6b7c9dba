"""Driving machines: the loop that performs their effects, replay, simulation, and their values as JSON."""

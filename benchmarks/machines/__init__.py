"""Measurements of engines, ranks, weights and servers: runs of several processes or machines."""

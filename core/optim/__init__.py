"""Optimizers as pairs of pure functions, learning-rate schedules, Muon."""

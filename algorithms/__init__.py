"""Estimators, losses and complete learning algorithms on trajectories and transcripts. Pure; imports core."""

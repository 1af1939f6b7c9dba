"""Strategies for the inputs of laws: tensors, records, streams, walks, processes, transcripts and models."""

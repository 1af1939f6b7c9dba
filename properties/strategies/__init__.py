"""Strategies for what laws draw: tensors, records, streams, walks, processes, transcripts and models."""

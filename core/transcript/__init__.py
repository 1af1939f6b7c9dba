"""Transcripts: what a language model was shown and what it sampled, as columns of tensors."""

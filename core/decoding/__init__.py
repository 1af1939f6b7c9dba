"""Decoding: batch slots and sampling of tokens."""

"""Logical proofs: data sets and their sources, rule mining, searches and rankings over many queries."""

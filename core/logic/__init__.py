"""Proving on a knowledge base with tensor operations: terms, unification, facts and rules, derivations. Opens no files."""

"""Proving on a knowledge base as tensor operations: terms, unification, facts and rules, derivations. Opens no file."""

"""Suites of laws for what a user can bring, one module for each kind."""

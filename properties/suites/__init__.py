"""Suites of laws for objects that users can supply, one module for each kind."""

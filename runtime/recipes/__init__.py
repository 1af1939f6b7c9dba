"""Recipes: named training pipelines, built from the components of the library."""

"""Recipes: whole pipelines that have a name, wired from the parts."""

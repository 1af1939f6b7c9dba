"""Bugs from public threads, each derived again in own words as a user would have written it, beside a correct twin."""

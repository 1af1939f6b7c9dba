"""Provers at work: data sets and where they come from, mined rules, searches and rankings over many queries."""

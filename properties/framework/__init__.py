"""The framework of laws: what a law is, how it is run, checked and reported, and the matrix of laws and mutants."""

"""The framework of laws: their definition, running, checking and reporting, and the matrix of laws and mutants."""

"""Work-arounds for the compiler: which versions of torch each was tried on stands in it."""

"""Work-arounds for the compiler; each module names the versions of torch that it was tested with."""

"""Effects: everything that touches files, clocks, terminals, processes, sockets and other libraries' environments."""

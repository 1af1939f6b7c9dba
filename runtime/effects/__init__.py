"""Everything that touches files, clocks, terminals and other people's environments."""

"""Members and hosts by Ray."""

"""Members and hosts by Monarch."""

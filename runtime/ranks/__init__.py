"""How several processes make one update: which of them computes what, and how it is put together again."""

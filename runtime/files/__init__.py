"""General file access: bounded reads, secrets, and the folder of a cache."""

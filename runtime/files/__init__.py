"""Files that are read and written whatever they are for: bounded reads, secrets, and the folder of a cache."""

"""Members in processes of this machine."""

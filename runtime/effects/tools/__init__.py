"""Calls of tools with a time limit, in processes, threads or behind a service of replicas."""

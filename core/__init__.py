"""The pure core: records, keys, scan, environments, policies. Imports torch, tensordict and attrs only."""

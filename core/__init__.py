"""What a step is: records, keys, scan, environments, policies. Pure; imports torch, tensordict and attrs only."""

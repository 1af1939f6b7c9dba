"""Laws on released packages of others: `python -m benchmarks.wild` installs them, runs suites, and writes docs/found.md."""

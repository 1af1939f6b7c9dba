"""The scheduler of asynchronous training: its rules, events, commands and state, and the transitions of samples."""

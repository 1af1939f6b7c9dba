"""The parts of the scheduler: its rules, what it is told and says, its state, and the moves of samples through it."""

"""Training with generators beside the trainer: what they say to each other, what is kept, and how it goes on."""

"""purestep: reinforcement learning as pure, compiled steps over immutable records."""

"""Which images make an episode, and how they are read."""

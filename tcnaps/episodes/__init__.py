"""Which images make an episode, and reading them ahead."""

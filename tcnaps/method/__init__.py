"""The paper: episodes, networks, clustering, the stopping rule, the variants. Imports nothing else of tcnaps."""

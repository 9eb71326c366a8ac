"""The paper: episodes, networks, clustering, the stopping rule and the variants. Imports nothing else of tcnaps."""

"""What is there for speed alone: the numbers of `tcnaps.method`, with less work. `tcnaps.method.arithmetic` chooses."""

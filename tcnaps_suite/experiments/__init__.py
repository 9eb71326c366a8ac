"""What the notebooks beyond the paper compute, one module for each question."""

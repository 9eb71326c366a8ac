"""The soft k-means stepper and the episode explorer. Each function takes a study and returns a widget."""

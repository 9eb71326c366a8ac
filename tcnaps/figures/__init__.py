"""Tidy frames to matplotlib axes and styled tables; no computation."""

"""Tidy frames → matplotlib Axes and styled tables; nothing is computed here."""

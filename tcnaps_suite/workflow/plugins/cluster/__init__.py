"""Plugins for clusters, which need other plugins."""

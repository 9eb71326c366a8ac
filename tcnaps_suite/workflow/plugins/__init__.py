"""Plugins of Snakemake, which finds them by their names: this folder is on the path of the processes that run it."""

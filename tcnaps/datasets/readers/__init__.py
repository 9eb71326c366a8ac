"""Readers of files: one module per published dataset or family. `tcnaps.datasets.files` lists them."""

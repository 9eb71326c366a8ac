"""Readers of files: one module per published dataset or family. `tcnaps.data` lists them."""

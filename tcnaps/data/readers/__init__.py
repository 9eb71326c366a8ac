"""Readers of files: folders of images, and Meta-Dataset's records. `tcnaps.data` lists them."""

"""One HTML file that holds a whole study: `python -m tcnaps.studies.report configs/miniature.yaml`."""

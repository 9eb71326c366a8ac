"""One HTML file that holds a whole study: `python -m tcnaps_suite.workflow.report configs/miniature.yaml`."""

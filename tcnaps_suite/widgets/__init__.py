"""The soft k-means stepper, the episode explorer, and interactive views of the figures.

Each function takes a study and returns a widget, for the last line of a notebook cell: `stepper_widget.stepper`,
`explorer_widget.explorer`, and `recall_view`, `refinement_view` and `query_count_view` of `figure_views`.
"""

READ_ONLY = "TCNAPS_READ_ONLY"  # set to 1 in the kernels of `make serve`: nothing is written there

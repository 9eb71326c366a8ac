"""The soft k-means stepper, the episode explorer, and interactive views of the figures.

Each takes a study and returns a widget, for the last line of a notebook cell. `stepper_data`, `explorer_data` and
`episode_table` compute what is shown. A widget is imported when it is first used: most need no PyTorch.
"""

import importlib

READ_ONLY = "TCNAPS_READ_ONLY"  # set to 1 in the kernels of `make serve`: nothing is written there

# No module may be named like a function here: importing it would put the module in the function's place.
_MODULES = {
    "stepper": "stepper_widget",
    "explorer": "explorer_widget",
    "recall_view": "figure_views",
    "refinement_view": "figure_views",
    "query_count_view": "figure_views",
}
__all__ = ["explorer", "query_count_view", "recall_view", "refinement_view", "stepper"]


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"tcnaps_suite.widgets has no '{name}'; it has: {', '.join(_MODULES)}")
    return getattr(importlib.import_module(f"tcnaps_suite.widgets.{_MODULES[name]}"), name)

"""What one tries out by hand: the soft k-means stepper, the episode explorer, and views of the figures' data.

Each is a function that takes a study and returns a widget for a cell's last line. They draw and listen; what they
show is computed by `tcnaps.widgets.stepper_data`, `tcnaps.widgets.explorer_data` and `tcnaps.widgets.view_data`. Importing one loads no other, so that
looking at results needs no PyTorch.
"""

import importlib

# A module must not have the name of a function here: importing it would put the module in the function's place.
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
        raise AttributeError(f"tcnaps.widgets has no '{name}'; it has: {', '.join(_MODULES)}")
    return getattr(importlib.import_module(f"tcnaps.widgets.{_MODULES[name]}"), name)

"""Whether the widgets are served to colleagues, who may look and download but must not write files."""

import os

READ_ONLY = "TCNAPS_READ_ONLY"  # set to 1 in the kernels of `make serve`


def read_only() -> bool:
    """Whether this kernel serves colleagues, who must not write files."""
    return os.environ.get(READ_ONLY) == "1"

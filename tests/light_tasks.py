"""What several processes run in tests of how they end; it imports little, so that they start quickly."""

import os
import time
from pathlib import Path

from tcnaps.training.processes import gather, rank


def failing(study, device):
    """The second process fails while the first waits for it."""
    if rank() == 1:
        raise FloatingPointError("the loss is nan")
    gather([None])


def sleeping(study, device, folder):
    """Writes the number of the process and sleeps."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

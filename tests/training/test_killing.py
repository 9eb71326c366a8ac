"""What is killed at random moments goes on and ends in the same bits; `tests/killing.py` says how it is tried."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_trainings_and_evaluations_end_in_the_same_bits():
    script = Path(__file__).parents[1] / "killing.py"
    run = subprocess.run([sys.executable, script, "--trials", "1", "--kills", "2"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "1 of 1 trials ended in the same 4 files"

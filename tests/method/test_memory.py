"""Memory that stays with the process while it is wanted, and goes back afterwards."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from tcnaps.method.memory import keep_some_memory, kept_memory
def resident():  # MiB after 900 MiB were used and freed
    held = [torch.zeros(300 << 18) for _ in range(3)]
    del held
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20
before = resident()
with kept_memory():
    within = resident()
keep_some_memory()
print(before, within, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_stays_within_the_block_and_goes_back_after_it():
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before, within, after = map(int, ended.stdout.split())
    assert within > before + 800 and after < before + 550

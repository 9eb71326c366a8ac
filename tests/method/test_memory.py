"""Memory that stays with the process: fewer page faults, and nothing else."""

import platform
import subprocess
import sys

import pytest

from tcnaps.method import memory
from tcnaps.method.memory import kept_memory

CODE = """
import resource, torch
from tcnaps.method.memory import keep_some_memory, kept_memory
def faults(blocks, size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        held = [torch.zeros(size << 18) for _ in range(blocks)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():    # MiB
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20
"""
NEEDS_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def measured(code: str) -> list[int]:
    ended = subprocess.run([sys.executable, "-c", CODE + code], capture_output=True, text=True, check=True)
    return [int(number) for number in ended.stdout.split()]


@NEEDS_GLIBC
def test_freed_memory_is_used_again_and_goes_back_in_the_end():
    usual, before, kept, within, after = measured("""
print(faults(3, 100), resident())
with kept_memory():
    with kept_memory():
        faults(3, 100)
    print(faults(3, 100), resident())
print(resident())
""")
    assert kept < usual / 10 and within > before + 250
    assert after < before + 50


@NEEDS_GLIBC
def test_some_memory_is_kept_from_the_first_call_on():
    usual, kept = measured("""
print(faults(3, 12))
keep_some_memory()
faults(3, 12)
print(faults(3, 12))
""")
    assert kept < usual / 5


def test_an_error_ends_it(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "_set", calls.append)
    with pytest.raises(RuntimeError), kept_memory(), kept_memory():
        raise RuntimeError
    assert calls == [memory.KEEPING, memory._usual]

"""Examples give what they say: those in docstrings, and the README's. Modules without examples are not imported."""

import contextlib
import doctest
import importlib
import io
import re
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "tcnaps").rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings(module):
    matplotlib.use("Agg")
    failed, attempted = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert attempted and not failed
    if plt := sys.modules.get("matplotlib.pyplot"):
        plt.close("all")


def test_the_readmes_python_runs():
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for indent, block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(re.sub(f"^{indent}", "", block, flags=re.MULTILINE), {})
        assert printed.getvalue().strip()


def test_the_readmes_claims_are_those_of_the_results():
    block = re.search(r"<!-- claims -->\n(.*?)<!-- end -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block[1] == (ROOT / "results/miniature/claims.md").read_text()

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


@pytest.mark.parametrize("page", ["README.md", "docs/using.md"])
def test_the_python_of_the_pages_runs(page):
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for indent, block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(re.sub(f"^{indent}", "", block, flags=re.MULTILINE), {})
        assert printed.getvalue().strip()


def test_the_cells_of_the_tutorial_run_one_after_the_other():
    cells, names = (
        re.findall(r"```{code-cell} python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL),
        {},
    )
    matplotlib.use("Agg")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for cell in cells:
            exec(cell, names)
    sys.modules["matplotlib.pyplot"].close("all")
    gains = re.findall(r"^\d-shot: \+([\d.]+) ± ([\d.]+) points", printed.getvalue(), re.MULTILINE)
    assert len(cells) == 5 and len(gains) == 2
    assert all(float(gain) > float(half_width) for gain, half_width in gains)  # as its words say


def test_the_claims_of_the_pages_are_those_of_the_results():
    def block(page):
        return re.search(r"<!-- claims -->\n(.*?)<!-- end -->", (ROOT / page).read_text(), re.DOTALL)[1]

    for study, page in (("photos", "docs/photos-study.md"), ("miniature", "docs/miniature-study.md")):
        assert block(page) == (ROOT / f"results/reference/{study}/claims.md").read_text()
    cells = [line.split("|") for line in block("docs/photos-study.md").splitlines() if line.startswith("| **")]
    rows = [f"| {claim.replace('**', '').strip()} | {verdict.strip()} |" for _, claim, *_, verdict, _ in cells]
    assert block("README.md").splitlines() == ["| claim | verdict |", "|---|---|", *rows]

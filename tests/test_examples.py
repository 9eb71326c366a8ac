"""Examples give what they say: those in docstrings, and the README's. Modules without examples are not imported."""

import contextlib
import doctest
import importlib
import io
import re
import sys
from pathlib import Path

import matplotlib
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "tcnaps").rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_examples_in_docstrings(path):
    matplotlib.use("Agg")
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
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
        output, promised = printed.getvalue(), re.findall(r"print.*  # ([\d.]+)$", block, re.MULTILINE)
        assert output.strip() and (promised or page != "README.md")
        assert all(abs(float(number) - float(told)) < 0.002 for number, told in zip(output.split(), promised))


def test_the_cells_of_the_tutorial_run_one_after_the_other():
    cells = re.findall(r"```{code-cell} python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)
    names = {}
    matplotlib.use("Agg")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for cell in cells:
            exec(cell, names)
    sys.modules["matplotlib.pyplot"].close("all")
    gains = re.findall(r"^\d-shot: \+([\d.]+) ± ([\d.]+) points", printed.getvalue(), re.MULTILINE)
    assert len(cells) == 5 and len(gains) == 2
    assert all(float(gain) > float(half_width) for gain, half_width in gains)  # as its words say


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md")))])
def test_a_page_s_numbers_stand_in_the_tables_that_it_names(page):
    """A difference and its interval are in one row of a table to which the same section links."""
    for section in re.split("^## ", (ROOT / page).read_text(), flags=re.MULTILINE):
        links = re.findall(r"\(([^()\s]*(?:results|reference)/[^()\s]*\.csv)\)", section)
        tables = [pd.read_csv((ROOT / page).parent / link).select_dtypes("number") for link in links]
        numbers = [(100 * table.loc[row]).abs().tolist() for table in tables for row in table.index]
        rows = [{round(number, digits) for number in row} for row in numbers for digits in (1, 2)]
        for value, interval in re.findall(r"([+−]?\d+\.\d+) ± (\d+\.\d+)", section):
            wanted = {abs(float(value.replace("−", "-"))), float(interval)}
            assert any(wanted <= row for row in rows), f"{page}: {value} ± {interval} is in none of {links}"

"""Builds the documentation site in build/docs: `make docs`. Warnings are errors, and nothing is fetched.

    python docs/build.py configs/miniature.yaml

All pages are copied to the same places below build/docs-source, so that links between them hold. Pages show the tables
and figures of the reference run, which their text quotes. A notebook is shown as the study's own run executed it, or
without outputs; a few are executed now.
"""

import json
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from tcnaps.config import UserError, load_study

ROOT = Path(__file__).parents[1]
SOURCE, SITE = ROOT / "build" / "docs-source", ROOT / "build" / "docs"
PAGES = ("*.md", "LICENSE", "*.cff", "Snakefile", "docs/*.md", "docs/images/*", "configs/*", "notebooks/*.ipynb")
RESULTS = ("results/published/*", "results/demonstration/**/*.*", "results/reference/**/*.csv")
RESULTS += ("results/reference/**/*.json", "figures/reference/**/*.png")
EXECUTED = ("00-data", "01-soft-k-means")  # notebooks that need no training and no results
ROOMS = ["tcnaps", *sorted(str(file.parent.relative_to(ROOT)) for file in ROOT.glob("tcnaps*/*/__init__.py"))]
CONTENTS = {
    "Begin": ["docs/tutorial", "docs/using", "docs/exploring", "docs/my-images", "docs/data", "docs/scaling"],
    "Understand": ["docs/glossary", "docs/fidelity", "docs/comparisons", "docs/estimator", "docs/speed"],
    "Results": ["docs/benchmarks", "docs/miniature-study", "results/published/README"],
    "Notebooks": [f"notebooks/{file.stem}" for file in sorted((ROOT / "notebooks").glob("*.ipynb"))],
    "Library": [f"api/{room}" for room in ROOMS],
    "Project": ["CONTRIBUTING", "CHANGELOG"],
}


def gather(run: Path) -> None:
    """Copies all pages to `SOURCE` and writes those of the library; `run` holds the executed notebooks, if any."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for file in (file for pattern in (*PAGES, *RESULTS) for file in ROOT.glob(pattern)):
        copy = SOURCE / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    (ROOT / "data").mkdir(exist_ok=True)
    (SOURCE / "data").symlink_to(ROOT / "data")
    front = (SOURCE / "README.md").rename(SOURCE / "index.md")
    with front.open("a") as page:
        for caption, pages in CONTENTS.items():
            page.write("\n".join([f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n", *pages, "```\n"]))
    for notebook in (SOURCE / "notebooks").glob("*.ipynb"):
        executed = sorted(run.glob(f"{notebook.stem}*.ipynb"))
        if executed or notebook.stem not in EXECUTED:
            notebook.write_text(json.dumps(finished(json.loads((*executed, notebook)[0].read_text()))))
    for room in ROOMS:
        page = SOURCE / "api" / f"{room}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(api(room))


def finished(notebook: dict) -> dict:
    """A notebook that the site does not execute, without progress bars and widgets, which a page can't show."""
    notebook["metadata"].pop("widgets", None)
    notebook["metadata"]["mystnb"] = {"execution_mode": "off"}
    widget = "application/vnd.jupyter.widget-view+json"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            outputs = [output for output in cell["outputs"] if output.get("name") != "stderr"]
            cell["outputs"] = [output for output in outputs if widget not in output.get("data", {})]
    return notebook


def api(room: str) -> str:
    """The page of a room, from the docstrings of its modules; of "tcnaps", the modules outside its rooms."""
    files = (ROOT / room).glob("*.py") if room == "tcnaps" else (ROOT / room).rglob("*.py")
    files = [file for file in files if file.stem != "__main__" and "plugins" not in file.parts]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in sorted(files)]
    names = [name.removesuffix(".__init__") for name in names]
    parts = [f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n" for name in names]
    return "\n".join([f"# {room.replace('/', '.')}\n", *parts])


def main() -> int:
    """Gathers and builds; returns the exit status."""
    try:
        gather(load_study(sys.argv[1]).results_folder / "notebooks")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    status = sphinx(["-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), str(SOURCE), str(SITE)])
    print(f"The site in {SITE} has the faults listed above." if status else SITE / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

"""Builds the documentation site in build/docs: `make docs`. Warnings are errors, and nothing is fetched.

    python docs/build.py configs/miniature.yaml

The pages are copied to build/docs-source, at the same places, so that links between them hold and nothing is written
here. Of a notebook that the study has an executed copy of, that copy is shown.
"""

import json
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from tcnaps.config import UserError, load_study

ROOT = Path(__file__).parents[1]
SOURCE, SITE = ROOT / "build" / "docs-source", ROOT / "build" / "docs"
COPIED = (
    "*.md",
    "LICENSE",
    "*.cff",
    "Snakefile",
    "docs/*.md",
    "docs/images/*",
    "configs/*",
    "figures/**/*.png",
    "results/published/*.md",
)
COPIED += ("results/**/*.csv", "results/demonstration/**/*.*", "results/benchmarks.json", "notebooks/*.ipynb")
EXECUTED = ("00-data", "01-soft-k-means", "15-speed")  # notebooks that need no training and no results
ROOMS = ("method", "config", "datasets", "episodes", "training", "evaluation", "figures", "widgets", "studies")
CONTENTS = {
    "Begin": ["docs/tutorial", "docs/using", "docs/exploring", "docs/my-images", "docs/data", "docs/scaling"],
    "Understand": ["docs/glossary", "docs/fidelity", "docs/comparisons", "docs/speed"],
    "Results": ["docs/miniature-study", "docs/photos-study", "results/published/README"],
    "Notebooks": [f"notebooks/{file.stem}" for file in sorted((ROOT / "notebooks").glob("*.ipynb"))],
    "Library": ["api/tcnaps", *(f"api/{room}" for room in ROOMS)],
    "Project": ["CONTRIBUTING", "CHANGELOG"],
}


def gather(results: Path) -> None:
    """Copies all pages to `SOURCE` and writes those of the library.

    Args:
        results: the study's, with executed notebooks if it has been run.
    """
    shutil.rmtree(SOURCE, ignore_errors=True)
    for file in (file for pattern in COPIED for file in ROOT.glob(pattern)):
        copy = SOURCE / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    (ROOT / "data").mkdir(exist_ok=True)
    (SOURCE / "data").symlink_to(ROOT / "data")
    front = (SOURCE / "README.md").rename(SOURCE / "index.md")
    trees = (
        f"```{{toctree}}\n:hidden:\n:caption: {name}\n\n" + "\n".join(p) + "\n```\n" for name, p in CONTENTS.items()
    )
    front.write_text("\n".join([front.read_text(), *trees]))
    for notebook in (SOURCE / "notebooks").glob("*.ipynb"):
        executed = sorted((results / "notebooks").glob(f"{notebook.stem}*.ipynb"))
        if executed or notebook.stem not in EXECUTED:
            notebook.write_text(json.dumps(as_it_is(json.loads((*executed, notebook)[0].read_text()))))
    (SOURCE / "api").mkdir()
    for room in ("tcnaps", *ROOMS):
        (SOURCE / "api" / f"{room}.md").write_text(api(room))


def as_it_is(notebook: dict) -> dict:
    """A notebook that is not executed for the site, without what a page can't show: progress bars and widgets."""
    notebook["metadata"].pop("widgets", None)
    notebook["metadata"]["mystnb"] = {"execution_mode": "off"}
    for cell in notebook["cells"]:
        for output in (outputs := cell.get("outputs", [])).copy():
            if output.get("name") == "stderr" or "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                outputs.remove(output)
    return notebook


def api(room: str) -> str:
    """The page of a room, from its modules' docstrings; of "tcnaps", the modules outside the rooms."""
    folder = ROOT / "tcnaps" / ("" if room == "tcnaps" else room)
    files = folder.glob("*.py") if room == "tcnaps" else folder.rglob("*.py")
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in sorted(files)]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    parts = [f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n" for name in names]
    return "\n".join([f"# {room}\n", *parts])


def main() -> int:
    """Gathers and builds; returns the exit status."""
    try:
        gather(load_study(sys.argv[1]).results_folder)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    status = sphinx(["-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), str(SOURCE), str(SITE)])
    print(f"The site has faults; they stand above. ({SITE})" if status else SITE / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

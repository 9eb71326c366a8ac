"""Writes a study's report: its figures, tables and answers in one HTML file, to be mailed."""

import contextlib
import json
import platform
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import nbformat
import pandas as pd

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.storage import write_text
from tcnaps.config.study import study_file
from tcnaps_suite.workflow.jobs import written
from tcnaps_suite.workflow.notebooks import Notebook, notebooks
from tcnaps_suite.workflow.pages import markdown, render, table
from tcnaps_suite.workflow.reference import file_of

READABLE = (".png", ".csv", ".md", "headline.json")  # among what notebooks write
LONGEST_TABLE = 200  # rows


def write_report(path: str) -> Path:
    """Writes results/<study>/report.html from the files of the run or, where it has none, of the reference."""
    study = load_study(path)
    chapters = [_chapter(study, notebook) for notebook in notebooks().values()]
    if not (chapters := [chapter for chapter in chapters if chapter["figures"] or chapter["tables"]]):
        raise UserError(f"Study '{study.name}' has no results yet: `make figures STUDY={path}` makes them.")
    headline = _content(file) if (file := file_of(f"results/{study.name}/headline.json")) else ""
    settings = study_file(path).read_text(encoding="utf-8")
    versions = f"Python {platform.python_version()}, PyTorch {version('torch')}"
    facts = {"Report": f"{datetime.now():%Y-%m-%d %H:%M}", "Versions": versions, "System": platform.platform()}
    shown = {"headline": headline, "chapters": chapters, "facts": study.origin | facts, "settings": settings}
    page = render("report.html", study=study, path=path, root=project_root(), headline_file=file, **shown)
    report = study.results_folder / "report.html"
    write_text(report, page)
    return report


def _chapter(study: Study, notebook: Notebook) -> dict:
    captions = _captions(notebook)
    replicates = range(1 if notebook.per == "study" else len(study.seeds))
    trainings = study.trainings if notebook.per == "training" else [""]
    runs = [(study.of_replicate(number), training) for number in replicates for training in trainings]
    names = [name for run in runs for name in written(notebook, *run) if name.endswith(READABLE)]
    files = [file for file in map(file_of, names) if file]
    return {
        "notebook": notebook,
        "figures": [(file, captions.get(file.stem, captions.get("", ""))) for file in files if file.suffix == ".png"],
        "tables": [(file, _content(file)) for file in files if file.suffix != ".png"],
        "missing": [name for name in names if not file_of(name)],
        "answers": _answers(study, notebook),
    }


def _captions(notebook: Notebook) -> dict[str, str]:
    """Figure → the Markdown cell above the first code cell that names it; "" → above one that computes names."""
    captions, above = {}, ""
    for cell in nbformat.read(notebook.path, as_version=4).cells:
        if cell.cell_type == "markdown":
            above = cell.source.removeprefix(f"# {notebook.title}")
        elif named := [name for name in notebook.writes.figures if f'"{name}"' in cell.source]:
            captions = dict.fromkeys(named, above) | captions
        elif "style.figure(" in cell.source:
            captions.setdefault("", above)
    return captions


def _content(file: Path) -> str:
    """A table, text or headline as HTML, or why it can't be read."""
    try:
        if file.suffix == ".csv":
            frame = pd.read_csv(file)
            return table(frame) if len(frame) <= LONGEST_TABLE else f"{len(frame)} rows: too many to be shown."
        text = file.read_text(encoding="utf-8")
        return markdown(text) if file.suffix == ".md" else str(json.loads(text)["sentence"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{file.relative_to(project_root())} can't be read ({error})."


def _answers(study: Study, notebook: Notebook) -> list[str]:
    """What the last cell of each executed copy printed."""
    answers = []
    for file in sorted(study.results_folder.glob(f"notebooks/{notebook.name}*.ipynb")):
        with contextlib.suppress(ValueError, LookupError):  # a damaged copy; `make figures` makes it again
            last = nbformat.read(file, as_version=4).cells[-1]
            answers.append("".join(output.get("text", "") for output in last.get("outputs", [])))
    return [answer for answer in answers if answer]

"""What a report shows: figures and tables under the question of the notebook that made them, with its own words."""

import json
import platform
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import psutil
from PIL import Image

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.fingerprint import code_version
from tcnaps.config.storage import write_text
from tcnaps.config.study import study_file
from tcnaps.evaluation.csv_tables import read_csv
from tcnaps.evaluation.result_files import rows_folder
from tcnaps_suite.workflow.pages import render
from tcnaps_suite.workflow.report.freshness import outdated
from tcnaps_suite.workflow.report.notebooks import Output, Run, command, opening, outputs_of, runs
from tcnaps_suite.workflow.report.striking import striking_episodes

LONGEST = 200  # rows of a table that is shown
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "scikit-learn", "matplotlib", "snakemake", "papermill")


def write_report(path: str) -> Path:
    """Writes results/<study>/report.html.

    Args:
        path: the study's file.

    Raises:
        ConfigError: the study's file is missing or wrong.
        UserError: nothing of the study has been made yet.
    """
    study, file = load_study(path), study_file(path).resolve()
    path = str(file.relative_to(project_root())) if file.is_relative_to(project_root()) else str(file)
    figures = [file for file in sorted(study.figures_folder.rglob("*.png")) if "views" not in file.parts]
    tables = sorted(study.results_folder.glob("*.csv"))
    if not figures and not tables:
        raise UserError(f"Study '{study.name}' has no results yet: `make figures STUDY={path}` makes them.")
    executed = runs(study.results_folder)
    has_rows = any(rows_folder(study).glob("*.json"))
    old = outdated(path, [_named(file) for file in [*figures, *tables]]) if has_rows else {}
    headline = _text(study.results_folder / "headline.json")
    page = render(
        "report.html",
        study=study,
        path=path,
        headline=json.loads(headline)["sentence"] if headline else "",
        claims=_text(study.results_folder / "claims.md"),
        chapters=_chapters(figures, tables, _Known(path, executed, old or {})),
        has_rows=has_rows,
        old=old,
        striking=striking_episodes(study),
        runs=executed,
        settings=_text(file),
        facts=_facts(study),
    )
    report = study.results_folder / "report.html"
    write_text(report, page)
    return report


class _Known(NamedTuple):
    """What is said of every figure and table."""

    study_file: str
    executed: dict[str, Run]
    old: dict[str, str]  # file → why it is out of date


def _chapters(figures: list[Path], tables: list[Path], known: _Known) -> list[dict]:
    """One per notebook that has made something, in reading order; at the end what no notebook names."""
    chapters, waiting = [], {"figures": figures, "results": tables}
    for notebook in sorted((project_root() / "notebooks").glob("*.ipynb")):
        made = {"figures": [], "results": []}
        for output in outputs_of(notebook):
            mine = [file for file in waiting[output.folder] if output.makes(_below(file))]
            made[output.folder] += [_made(file, notebook.stem, output, known) for file in mine]
            waiting[output.folder] = [file for file in waiting[output.folder] if file not in mine]
        if made["figures"] or made["results"]:
            own = [run for name, run in known.executed.items() if name.startswith(notebook.stem)]
            answers = [run.answer for run in own if run.answer]
            chapters.append({"notebook": notebook.stem, "question": opening(notebook)[0], "answers": answers} | made)
    if any(waiting.values()):
        rest = {folder: [_made(file, "", None, known) for file in files] for folder, files in waiting.items()}
        chapters.append({"notebook": "", "question": "What no notebook here has made"} | rest)
    return chapters


def _made(file: Path, notebook: str, output: Output | None, known: _Known) -> dict:
    """What the page says of a figure or table."""
    told = {"file": file, "name": _named(file), "note": known.old.get(_named(file))}
    if file.suffix == ".csv":
        frame = read_csv(file)
        return told | {"rows": len(frame), "frame": frame if len(frame) <= LONGEST else None}
    with Image.open(file) as image:
        told["about"] = {name: text for name, text in image.info.items() if isinstance(text, str)}
    if output is None:
        return told | {"heading": file.stem, "prose": "", "command": ""}
    part = next((part + "/" for part in file.parts if part.startswith("replicate-")), "")
    run = known.executed.get(f"{part}{notebook}-{file.stem}") or known.executed.get(part + notebook)
    parameters = run.parameters if run else {"study_file": known.study_file}
    heading = f"{output.heading}: {file.stem}" if "[" in output.name else output.heading  # one of several
    return told | {"heading": heading, "prose": output.prose, "command": command(notebook, parameters)}


def _named(file: Path) -> str:
    return str(file.relative_to(project_root()))


def _below(file: Path) -> str:
    """A figure's name in figures/<study>/ without suffix, a table's in results/<study>/."""
    path = file.with_suffix("") if file.suffix == ".png" else file
    return "/".join(path.relative_to(project_root()).parts[2:])


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _facts(study: Study) -> dict[str, str]:
    """Versions, machine and seeds."""
    processor = [line.split(":")[1] for line in _text(Path("/proc/cpuinfo")).splitlines() if "model name" in line]
    gigabytes = psutil.virtual_memory().total / 1e9
    return {
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "tcnaps": code_version(),
        "digest of the settings": study.origin["Digest"],
        "seed of the test episodes": str(study.seed),
        "seeds of the trainings": ", ".join(map(str, study.seeds)),
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        "machine": f"{(processor or [platform.machine()])[0].strip()}, {psutil.cpu_count()} cores, {gigabytes:.0f} GB",
        "system": platform.platform(),
    }

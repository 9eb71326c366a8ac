"""The committed tables and figures of a study's reference run, which the pages quote: results/reference/<study>/.

Their checksums, and those of the demonstration and the paper's tables, are in results/reference/SHA256SUMS:
sha256sum -c checks them.
"""

import json
import os
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from tcnaps.config import Study, UserError, project_root
from tcnaps.config.fingerprint import COPIES, code_version
from tcnaps.config.storage import file_digest, write_text

# The compared tables, each with the columns that identify a row. All have the columns `difference` and `interval`.
CONTRASTS = {
    "claims.csv": ["images", "claim", "contrast", "setting", "domain"],
    "gain-at-1-shot.csv": ["evaluation", "dataset"],
    "gain-of-meta-training.csv": ["variant", "evaluation", "dataset"],
}
PATTERNS = ("**/[!.]*.csv", "claims.md", "headline.json")
WITHOUT = {"notebooks", "rows", "checkpoints", "watch", "differences", "served", "served-labels", "example-to-label"}
VERSIONS = ("numpy", "torch", "scikit-learn")
CHECKSUMS = "results/reference/SHA256SUMS"  # from the project's root
CHECKED = ("results/reference", "results/demonstration", "results/published")
SHOWN = 5  # contrasts that differ, by name


def file_of(path: str) -> Path | None:
    """A run's file by its path from the project's root, else the reference's, else None."""
    kind, _, rest = path.partition("/")
    files = project_root() / path, project_root() / kind / "reference" / rest
    return next((file for file in files if file.is_file()), None)


def compared(study: Study) -> str:
    """How a run's contrasts compare with the reference's; empty where there is none.

    Two contrasts agree where their difference lies within both intervals together, sqrt(a² + b²).
    """
    names, agreeing = [], []
    for table, keys in CONTRASTS.items():
        files = study.results_folder / table, _reference(study, "results") / table
        if not all(file.is_file() for file in files):
            continue
        try:
            run, reference = (pd.read_csv(file)[[*keys, "difference", "interval"]].dropna() for file in files)
        except (KeyError, ValueError):
            return f"{table} can't be compared with the reference."
        both = run.merge(reference, on=keys, suffixes=("", "_reference"))
        distance = (both["difference"] - both["difference_reference"]).abs()
        agreeing += list(distance <= np.hypot(both["interval"], both["interval_reference"]))
        names += [" ".join(map(str, row)) for row in both[keys].itertuples(index=False)]
    if not names:
        return ""
    others = [name for name, agrees in zip(names, agreeing) if not agrees]
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    listed = f"; not: {', '.join(others[:SHOWN])}{more}" if others else ""
    return f"{sum(agreeing)} of {len(names)} contrasts agree with the reference within both intervals{listed}."


def keep(study: Study) -> str:
    """Copies a finished run's tables and PNG figures to the reference, with provenance.json; names others that stay."""
    tables, pictures = run_files(study)
    if not tables:
        raise UserError(f"There are no tables in {study.results_folder}: run the study first, with make figures.")
    made = provenance(study)  # before the copies change the checkout
    places = _reference(study, "results"), _reference(study, "figures")
    copies = {file: places[0] / file.relative_to(study.results_folder) for file in sorted(tables)}
    copies |= {file: places[1] / file.relative_to(study.figures_folder) for file in sorted(pictures)}
    origin = places[0] / "provenance.json"
    others = {file for place in places for file in place.rglob("*.*") if file.is_file() and COPIES not in file.parts}
    names = sorted(file.relative_to(project_root()).as_posix() for file in others - {*copies.values(), origin})
    for file, copy in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    write_text(origin, json.dumps(made, indent=1) + "\n")
    write_checksums()
    said = f"{len(copies) + 1} files in results/reference/{study.name}/ and figures/reference/{study.name}/"
    left = f". Not of this run: {', '.join(names)}. Delete those that no page quotes, then run this again."
    return said + left if names else said


def run_files(study: Study) -> tuple[list[Path], list[Path]]:
    tables = [file for pattern in PATTERNS for file in study.results_folder.glob(pattern)]
    tables = [file for file in tables if not {*WITHOUT, COPIES} & set(file.relative_to(study.results_folder).parts)]
    return tables, [file for file in study.figures_folder.rglob("[!.]*.png") if COPIES not in file.parts]


def provenance(study: Study) -> dict[str, object]:
    """What a run was made with: machine, versions, code, seeds."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        "versions": {"python": platform.python_version()} | {name: version(name) for name in VERSIONS},
        "code": code_version(),
        "seed": study.seed,
        "seeds of the trainings": list(study.seeds),
    }


def write_checksums() -> None:
    root = project_root()
    files = sorted(file for folder in CHECKED for file in (root / folder).rglob("*") if file.is_file())
    files = [file for file in files if file.suffix and COPIES not in file.parts]
    lines = [f"{file_digest(file)}  {file.relative_to(root).as_posix()}\n" for file in files]
    write_text(root / CHECKSUMS, "".join(lines))


def check(folder: str) -> None:
    """Raises UserError where a file of the folder is damaged or missing. Without checksums, nothing is checked."""
    root = project_root()
    lines = (root / CHECKSUMS).read_text(encoding="utf-8").splitlines() if (root / CHECKSUMS).is_file() else []
    for digest, name in (line.split("  ", 1) for line in lines):
        if name.startswith(f"{folder}/") and not ((root / name).is_file() and file_digest(root / name) == digest):
            raise UserError(f"{name} is damaged or missing. In a clone, restore it by: git checkout -- {name}")


def _reference(study: Study, kind: str) -> Path:
    root = project_root() / kind
    return root / "reference" / getattr(study, f"{kind}_folder").relative_to(root)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())

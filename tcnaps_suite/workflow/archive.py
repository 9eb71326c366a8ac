"""Puts a finished study into one zip, to be kept, published and loaded with `tcnaps.load`.

It holds the weights, a card (README.md), the settings, tables, figures, the report and checksums.
"""

import hashlib
import json
import zipfile
from pathlib import Path

import pandas as pd

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.storage import replacing
from tcnaps.config.study import study_file
from tcnaps.training.archives import STUDY_FILE
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, load_model
from tcnaps_suite.workflow.pages import render
from tcnaps_suite.workflow.reference import provenance, run_files
from tcnaps_suite.workflow.report import write_report

TRAININGS = ("support", "support_and_query")  # Simple and Transductive CNAPS


def write_archive(path: str) -> Path:
    """Writes results/<study>/archive.zip; a UserError if the study has not been trained."""
    study = load_study(path)
    trained = [checkpoint_folder(study) / f"{name}.safetensors" for name in TRAININGS if name in study.trainings]
    weights = [backbone_file(study), *(file for file in trained if file.is_file())]
    tables, figures = run_files(study)
    if len(weights) < 2 or not tables:
        raise UserError(f"Study '{study.name}' has no finished run: `make figures STUDY={path}` makes it.")
    for file in weights[1:]:
        load_model(study, file.stem)  # a CheckpointError where it was trained on another backbone
    root, settings = project_root(), study_file(path)
    files = [*weights, *tables, *figures, write_report(path), root / "LICENSE", root / "CITATION.cff"]
    contents = {file.relative_to(root).as_posix(): file.read_bytes() for file in files if file.is_file()}
    contents[STUDY_FILE] = settings.read_bytes()
    contents["provenance.json"] = (json.dumps(provenance(study), indent=1) + "\n").encode()
    contents["README.md"] = _card(study, weights).encode()
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items()]
    contents["SHA256SUMS"] = "".join(sums).encode()
    archive = study.results_folder / "archive.zip"
    with replacing(archive) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return archive


def _card(study: Study, weights: list[Path]) -> str:
    headline, data = study.results_folder / "headline.json", study.results_folder / "data.csv"
    tables = [study.results_folder / f"{name}.csv" for name in ("accuracy", "fixed-way-and-shot")]
    return render(
        "card.md",
        study=study,
        weights=[file.stem for file in weights],
        headline=json.loads(headline.read_text(encoding="utf-8"))["sentence"] if headline.is_file() else "",
        data=pd.read_csv(data) if data.is_file() else pd.DataFrame(),
        accuracies=pd.concat([pd.read_csv(file) for file in tables if file.is_file()] or [pd.DataFrame()]),
        provenance=provenance(study),
    )

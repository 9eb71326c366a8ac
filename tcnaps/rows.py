"""Where the rows of an evaluation lie, and how to read them; no torch, so that tables and figures start at once."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tcnaps.config import Study


def rows_folder(study: Study) -> Path:
    """results/<study>/rows, from the project's root."""
    return study.results_folder / "rows"


def rows_file(study: Study, training: str, evaluation: str, dataset: str) -> Path:
    """The file with the rows of one training, evaluation and dataset."""
    return rows_folder(study) / training / evaluation / f"{dataset}.parquet"


def write_manifest(study: Study, training: str, files: Sequence[Path]) -> Path:
    """Says which files a finished evaluation consists of."""
    path = rows_folder(study) / f"{training}.json"
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(json.dumps([str(file.relative_to(path.parent)) for file in files], indent=1) + "\n")
    os.replace(scratch, path)
    return path


def load_rows(study: Study, evaluations: str | Sequence[str], trainings: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a query image, of one or several evaluations.

    Args:
        trainings: default: all that the evaluations name.

    Raises:
        ValueError: the study has no such evaluation, or it does not name the training.
        FileNotFoundError: the evaluation has not been run, or not to its end.
    """
    frames = []
    for name in [evaluations] if isinstance(evaluations, str) else evaluations:
        if name not in study.evaluations:
            raise ValueError(f"Study '{study.name}' has no evaluation '{name}'; it has {', '.join(study.evaluations)}.")
        evaluation = study.evaluations[name]
        for training in trainings or evaluation.trainings:
            if training not in evaluation.trainings:
                raise ValueError(f"Evaluation '{name}' of study '{study.name}' does not name training '{training}'; add it to "
                                 f"evaluations.{name}.trainings in the study's YAML.")
            for dataset in evaluation.datasets:
                path = rows_file(study, training, name, dataset)
                if not path.is_file():
                    raise FileNotFoundError(f"There are no rows {path}. Run notebooks/04-evaluate.ipynb with training = "
                                            f"'{training}' for this study, or `make figures`.")
                frames.append(pd.read_parquet(path))
    return pd.concat(frames, ignore_index=True)

"""Where the rows of an evaluation lie, and how to read them; no torch, so that tables and figures start at once."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tcnaps.config import FixedProtocol, Study
from tcnaps.method.variants import VARIANTS


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


def needed_trainings(variants: Sequence[str]) -> list[str]:
    """The trainings that serve these variants, each once.

    Raises:
        ValueError: there is no such variant.
    """
    unknown = [name for name in variants if name not in VARIANTS]
    if unknown:
        raise ValueError(f"There is no variant '{unknown[0]}'. Variants are: {', '.join(VARIANTS)}.")
    return list(dict.fromkeys(VARIANTS[name].training for name in variants))


def load_query_counts(study: Study, trainings: Sequence[str]) -> pd.DataFrame:
    """Rows of the fixed evaluations that differ only in their number of queries, on the datasets that all of them have.

    Their `protocol` is "<way>-way <shot>-shot"; the column queries_per_class tells them apart.

    Raises:
        ValueError: the study evaluates no way and shot with several numbers of queries.
    """
    settings: dict[tuple[int, int], list[str]] = {}
    for name, evaluation in study.evaluations.items():
        if isinstance(evaluation.protocol, FixedProtocol) and set(trainings) <= set(evaluation.trainings):
            settings.setdefault((evaluation.protocol.way, evaluation.protocol.shot), []).append(name)
    # Episodes that all counts have in common, so that the curve compares like with like.
    several = {setting: names for setting, names in settings.items() if len(names) > 1}
    if not several:
        raise ValueError(
            f"Study '{study.name}' has no two fixed evaluations of {', '.join(trainings)} that differ in "
            "queries_per_class only."
        )
    frames = []
    for (way, shot), names in several.items():
        shared = set.intersection(*(set(study.evaluations[name].datasets) for name in names))
        fewest = min(study.evaluations[name].episodes for name in names)
        rows = load_rows(study, names, trainings)
        rows = rows[rows["dataset"].isin(shared) & (rows["episode"] < fewest)]
        frames.append(rows.assign(evaluation=f"{way}-way {shot}-shot"))
    return pd.concat(frames, ignore_index=True)


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
                raise ValueError(
                    f"Evaluation '{name}' of study '{study.name}' does not name training '{training}'; add it to "
                    f"evaluations.{name}.trainings in the study's YAML."
                )
            for dataset in evaluation.datasets:
                path = rows_file(study, training, name, dataset)
                if not path.is_file():
                    raise FileNotFoundError(
                        f"There are no rows {path}. Run notebooks/04-evaluate.ipynb with training = "
                        f"'{training}' for this study, or `make figures`."
                    )
                frames.append(pd.read_parquet(path))
    return pd.concat(frames, ignore_index=True)

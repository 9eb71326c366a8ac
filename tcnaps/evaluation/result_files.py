"""The files with the rows of an evaluation: where they lie, and how they are written, checked and read.

No torch, so that tables and figures start at once.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tcnaps.config import FixedProtocol, Study, UserError
from tcnaps.config.errors import nearest
from tcnaps.config.storage import digest_of, replacing, write_text
from tcnaps.method.variants import ALL_VARIANTS

COLUMNS = ["training", "replicate", "evaluation", "dataset", "domain", "split", "episode", "way", "n_support"]
COLUMNS += ["queries_per_class", "query", "label", "class_name", "shot", "image"]
COLUMNS += ["prediction_0", "confidence_0"]  # and those of more steps
NUMBERS = ["replicate", "episode", "way", "n_support", "queries_per_class", "query", "label", "shot", "image"]
TEXTS = ["training", "evaluation", "dataset", "domain", "split"]
DIGEST = b"tcnaps_digest"  # in a file's metadata


class RowsError(UserError):
    """A file of rows is damaged, or holds other rows than it should; the message names it and the remedy."""


class MissingRows(RowsError, FileNotFoundError):
    """An evaluation has not been run, or not to its end."""


def rows_folder(study: Study) -> Path:
    """rows/ among the results of the study's replicate."""
    return study.results_folder / "rows"


def rows_file(study: Study, training: str, evaluation: str, dataset: str) -> Path:
    """The file with the rows of one training, evaluation and dataset."""
    return rows_folder(study) / training / evaluation / f"{dataset}.parquet"


def write_rows(path: Path, rows: pd.DataFrame, key: str) -> None:
    """Writes rows, whole or not at all, with the key of the job that they came from and a digest of what they hold."""
    facts = {"tcnaps": key, DIGEST: _digest(rows)}
    table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(facts)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def read_rows(path: Path, remedy: str = "Run `make figures`.") -> tuple[pd.DataFrame, str]:
    """The rows of one file and the key that they were written under; `remedy` ends what an error says.

    Raises:
        MissingRows: there is no such file.
        RowsError: it is damaged.
    """
    if not path.is_file():
        raise MissingRows(f"There are no rows {path}. {remedy}")
    try:
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
        rows, facts = table.to_pandas(), table.schema.metadata
        if facts[DIGEST].decode() != _digest(rows):
            raise ValueError("its digest is of other rows")
        return rows, facts[b"tcnaps"].decode()
    except Exception as error:  # Arrow and pandas raise many kinds for a damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise RowsError(f"{path} is damaged ({reason}). {remedy}") from None


def _digest(rows: pd.DataFrame) -> str:
    hashes = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    columns = [[str(name), str(kind)] for name, kind in rows.dtypes.items()]
    return digest_of([columns, hashlib.sha256(hashes.tobytes()).hexdigest()])


def write_manifest(study: Study, training: str, files: Sequence[Path]) -> Path:
    """Says which files a finished evaluation consists of, with the digest of each: other rows make another manifest."""
    path = rows_folder(study) / f"{training}.json"
    digests = {str(file.relative_to(path.parent)): _written_digest(file) for file in files}
    write_text(path, json.dumps(digests, indent=1) + "\n")
    return path


def incomplete_evaluations(study: Study) -> dict[Path, str]:
    """Manifests that name a missing or damaged file of rows, with what is wrong. Reads every file that they name."""
    found = {}
    parts = [rows_folder(study.of_replicate(number)) for number in range(len(study.seeds))]
    for manifest in sorted(file for part in parts for file in part.glob("*.json")):
        try:
            for file, digest in json.loads(manifest.read_text(encoding="utf-8")).items():
                read_rows(manifest.parent / file)
                if digest != _written_digest(manifest.parent / file):
                    raise ValueError("it is the manifest of other rows")
        except RowsError as error:
            found[manifest] = f"{manifest}: {error}"
        except (AttributeError, OSError, TypeError, ValueError, RecursionError):
            found[manifest] = f"{manifest} is damaged."
    return found


def _written_digest(file: Path) -> str:
    return pq.read_schema(file).metadata[DIGEST].decode()


def needed_trainings(variants: Sequence[str]) -> list[str]:
    """The trainings that serve these variants, each once.

    Raises:
        UserError: there is no such variant.
    """
    for name in variants:
        if name not in ALL_VARIANTS:
            raise UserError(f"There is no variant '{name}'{nearest(name, ALL_VARIANTS)}")
    return list(dict.fromkeys(ALL_VARIANTS[name].training for name in variants))


def load_rows(
    study: Study,
    evaluations: str | Sequence[str],
    trainings: Sequence[str] | None = None,
    replicates: Sequence[int] | None = None,
) -> pd.DataFrame:
    """The table of one row per query image, of one or several evaluations.

    Args:
        trainings: default: all that the evaluations name.
        replicates: numbers of the trainings' replicates; default: all that the study has.

    Raises:
        UserError: the study has no such evaluation, or it does not name the training.
        MissingRows: the evaluation has not been run, or not to its end.
        RowsError: a file is damaged, or holds rows of something else.
    """
    frames = []
    for name in [evaluations] if isinstance(evaluations, str) else evaluations:
        if name not in study.evaluations:
            raise UserError(f"Study '{study.name}' has no evaluation '{name}'; it has {', '.join(study.evaluations)}.")
        evaluation = study.evaluations[name]
        for training in trainings or evaluation.trainings:
            if training not in evaluation.trainings:
                raise UserError(
                    f"Evaluation '{name}' of study '{study.name}' does not name training '{training}'; add it to "
                    f"evaluations.{name}.trainings in the study's YAML."
                )
            for number in range(len(study.seeds)) if replicates is None else replicates:
                own = study.of_replicate(number)
                frames += [_checked_rows(own, training, name, dataset) for dataset in evaluation.datasets]
    return pd.concat(frames, ignore_index=True)


def _checked_rows(study: Study, training: str, evaluation: str, dataset: str) -> pd.DataFrame:
    path = rows_file(study, training, evaluation, dataset)
    again = f"Run notebooks/04-evaluate.ipynb with training = '{training}' for this study, or `make figures`."
    rows, _ = read_rows(path, again)
    expected = {"training": training, "replicate": study.replicate, "evaluation": evaluation, "dataset": dataset}
    if problem := _problem(rows, expected, study.evaluations[evaluation].episodes):
        raise RowsError(f"{path} {problem}. Delete it. {again}")
    return rows


def _problem(rows: pd.DataFrame, expected: dict[str, str | int], n_episodes: int) -> str | None:
    """Why rows are not those of a training's replicate, evaluation and dataset, if they are not."""
    if missing := [column for column in COLUMNS if column not in rows]:
        return f"lacks the columns {', '.join(missing)}"
    if strange := strange_columns(rows):
        return f"has values of another kind in the columns {', '.join(strange)}"
    for column, value in expected.items():
        if len(other := rows.loc[rows[column] != value, column]):
            return f"holds rows of the {column} '{other.iloc[0]}', not '{value}'"
    if not np.array_equal(rows["episode"].unique(), np.arange(n_episodes)):
        return f"does not hold the episodes 0 to {n_episodes - 1}"
    labels = rows[["label", *(column for column in rows if column.startswith("prediction_"))]]
    if not (labels.ge(0) & labels.lt(rows["way"], axis=0)).all(axis=None):
        return "holds labels that are no class of their episode"
    return None


def strange_columns(rows: pd.DataFrame) -> list[str]:
    """Columns of a table of rows that don't hold what they should: whole numbers, or text without a gap."""

    def is_strange(name: str) -> bool:
        column = rows[name]
        if name in TEXTS:
            gaps = bool(column.isna().any())
            return gaps or (column.dtype == object and not pd.api.types.is_string_dtype(column))
        is_count = name in NUMBERS or str(name).startswith("prediction_")
        return is_count and not pd.api.types.is_integer_dtype(column)

    return [name for name in rows if is_strange(name)]


def load_query_counts(study: Study, trainings: Sequence[str], replicates: Sequence[int] | None = None) -> pd.DataFrame:
    """Rows of the fixed evaluations that differ only in their number of queries, on the datasets that all of them have.

    Their `evaluation` is "<way>-way <shot>-shot"; the column queries_per_class tells them apart.

    Args:
        replicates: as for `load_rows`.

    Raises:
        UserError: the study evaluates no way and shot with several numbers of queries.
    """
    settings: dict[tuple[int, int], list[str]] = {}
    for name, evaluation in study.evaluations.items():
        if (
            isinstance(evaluation.protocol, FixedProtocol)
            and not evaluation.before_training
            and set(trainings) <= set(evaluation.trainings)
        ):
            settings.setdefault((evaluation.protocol.way, evaluation.protocol.shot), []).append(name)
    # Episodes that all counts have in common, so that the curve compares like with like.
    several = {setting: names for setting, names in settings.items() if len(names) > 1}
    if not several:
        raise UserError(
            f"Study '{study.name}' has no two fixed evaluations of {' and '.join(trainings) or 'a training'} that "
            "differ in queries_per_class only: add some to its YAML, as configs/miniature.yaml has them."
        )
    frames = []
    for (way, shot), names in several.items():
        shared = set.intersection(*(set(study.evaluations[name].datasets) for name in names))
        fewest = min(study.evaluations[name].episodes for name in names)
        rows = load_rows(study, names, trainings, replicates)
        rows = rows[rows["dataset"].isin(shared) & (rows["episode"] < fewest)]
        frames.append(rows.assign(evaluation=f"{way}-way {shot}-shot"))
    return pd.concat(frames, ignore_index=True)

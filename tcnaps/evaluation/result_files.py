"""Rows of evaluations, and tables, on disk. It does not import torch, so that tables and figures start at once."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tcnaps.config import Study, UserError, project_root
from tcnaps.config.errors import nearest
from tcnaps.config.storage import digest_of, replacing, write_text
from tcnaps.method.variants import ALL_VARIANTS

COLUMNS = ["training", "replicate", "evaluation", "dataset", "domain", "split", "episode", "way", "n_support"]
COLUMNS += ["queries_per_class", "query", "label", "class_name", "shot", "image"]
COLUMNS += ["prediction_0", "confidence_0"]  # and those of more refinement steps
DIGEST, ASKED = b"tcnaps_digest", b"tcnaps_asked"  # keys of a file's metadata


class RowsError(UserError):
    """A file of rows is damaged or holds the wrong rows; the message names the file and the remedy."""


def rows_file(study: Study, training: str, evaluation: str, dataset: str) -> Path:
    """The file with the rows of one training, evaluation and dataset."""
    return study.results_folder / "rows" / training / evaluation / f"{dataset}.parquet"


def asked_of(study: Study, evaluation: str) -> dict[str, object]:
    """The settings that an evaluation's rows must have been made with, to be valid for the study as it is now."""
    protocol = study.evaluations[evaluation].protocol.model_dump(mode="json")
    return {"seed": study.seed, "recorded_steps": study.refinement.recorded_steps, "protocol": protocol}


def write_rows(path: Path, rows: pd.DataFrame, key: str, asked: dict[str, object] | None = None) -> None:
    """Writes rows, with the key of the job that made them and `asked_of`. An interrupted call leaves no half file."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    table = table.replace_schema_metadata({"tcnaps": key, DIGEST: _digest(rows), ASKED: json.dumps(asked or {})})
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def read_rows(path: Path, remedy: str = "Run `make figures`.") -> tuple[pd.DataFrame, str]:
    """The rows of one file, and the key that they were written with; an error's message ends with `remedy`."""
    if not path.is_file():
        raise RowsError(f"There are no rows {path}. {remedy}")
    try:
        table = pq.read_table(path, partitioning=None)
        rows, metadata = table.to_pandas(), table.schema.metadata
        if metadata[DIGEST].decode() != _digest(rows):
            raise ValueError("its digest does not match its rows")
        return rows, metadata[b"tcnaps"].decode()
    except Exception as error:  # Arrow and pandas raise many kinds for a damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise RowsError(f"{path} is damaged ({reason}). {remedy}") from None


def _digest(rows: pd.DataFrame) -> str:
    """SHA-256 of the columns' names and types, and of all values."""
    columns = [[str(name), str(dtype)] for name, dtype in rows.dtypes.items()]
    hashes = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    return digest_of([columns, hashlib.sha256(hashes.tobytes()).hexdigest()])


def write_manifest(study: Study, training: str, files: Sequence[Path]) -> Path:
    """Writes the list of a finished evaluation's files, with their digests: other rows give another manifest."""
    path = study.results_folder / "rows" / f"{training}.json"
    digests = {str(file.relative_to(path.parent)): pq.read_schema(file).metadata[DIGEST].decode() for file in files}
    write_text(path, json.dumps(digests, indent=1) + "\n")
    return path


def incomplete_evaluations(study: Study) -> dict[Path, str]:
    """The manifests that name a missing or damaged file of rows, each with a sentence that says what is wrong."""
    replicates, problems = [study.of_replicate(number) for number in range(len(study.seeds))], {}
    for manifest in sorted(file for one in replicates for file in one.results_folder.glob("rows/[!.]*.json")):
        try:
            for name in json.loads(manifest.read_text(encoding="utf-8")).keys():
                read_rows(manifest.parent / name)
        except RowsError as error:
            problems[manifest] = f"{manifest}: {error}"
        except (AttributeError, OSError, TypeError, ValueError, RecursionError):
            problems[manifest] = f"{manifest} is damaged."
    return problems


def needed_trainings(variants: Sequence[str]) -> list[str]:
    """The trainings that these variants need, each once."""
    for name in variants:
        if name not in ALL_VARIANTS:
            raise UserError(f"There is no variant '{name}'{nearest(name, ALL_VARIANTS)}")
    return list(dict.fromkeys(ALL_VARIANTS[name].training for name in variants))


def load_rows(
    study: Study, evaluations: str | Sequence[str], trainings: Sequence[str] = (), replicates: Sequence[int] = ()
) -> pd.DataFrame:
    """The table of one row per query image, of one or several evaluations; `images` says which are real or rendered.

    By default it holds all trainings and replicates. A RowsError names a file that is missing, damaged or out of date.
    """
    frames = []
    for name in [evaluations] if isinstance(evaluations, str) else evaluations:
        if name not in study.evaluations:
            raise UserError(f"Study '{study.name}' has no evaluation '{name}'; it has {', '.join(study.evaluations)}.")
        evaluation = study.evaluations[name]
        for training in trainings or evaluation.trainings:
            if training not in evaluation.trainings:
                problem = f"Evaluation '{name}' of study '{study.name}' does not name training '{training}'"
                raise UserError(f"{problem}; add it to evaluations.{name}.trainings in the study's YAML.")
            for number in replicates or range(len(study.seeds)):
                replicate = study.of_replicate(number)
                frames += [_checked_rows(replicate, training, name, dataset) for dataset in evaluation.datasets]
    return pd.concat(frames, ignore_index=True)


def _checked_rows(study: Study, training: str, evaluation: str, dataset: str) -> pd.DataFrame:
    path = rows_file(study, training, evaluation, dataset)
    remedy = f"Run notebooks/04-evaluate.ipynb with training = '{training}' for this study, or `make figures`."
    rows, _ = read_rows(path, remedy)  # undamaged, but perhaps others than expected
    asked = asked_of(study, evaluation)
    for name, value in json.loads(pq.read_schema(path).metadata.get(ASKED, b"{}")).items():
        if value != asked[name]:
            raise RowsError(f"{path} was evaluated with {name} {value}; the study has {asked[name]} now. {remedy}")
    expected = {"training": training, "replicate": study.replicate, "evaluation": evaluation, "dataset": dataset}
    expected |= {"domain": study.datasets[dataset].domain}
    n_episodes, problem = study.evaluations[evaluation].episodes, None
    steps = (f"prediction_{step}" for step in range(study.refinement.recorded_steps + 1))
    if missing := [column for column in [*COLUMNS, *steps] if column not in rows]:
        problem = f"lacks the columns {', '.join(missing)}"
    elif others := [name for name, value in expected.items() if (rows[name] != value).any()]:
        found = rows.loc[rows[others[0]] != expected[others[0]], others[0]].iloc[0]
        problem = f"holds rows of the {others[0]} '{found}', not '{expected[others[0]]}'"
    elif not np.array_equal(rows["episode"].unique(), np.arange(n_episodes)):
        problem = f"does not hold the episodes 0 to {n_episodes - 1}"
    if problem:
        raise RowsError(f"{path} {problem}. Delete it. {remedy}")
    return rows.assign(images=study.datasets[dataset].images)


def load_query_counts(study: Study, trainings: Sequence[str]) -> pd.DataFrame:
    """Rows of the fixed evaluations that differ only in queries_per_class, on the datasets and episodes that all share.

    The column `evaluation` becomes "<way>-way <shot>-shot". A UserError says that the study has no such evaluations.
    """
    fixed = {each.protocol: name for name, each in reversed(study.evaluations_of(trainings, "fixed").items())}
    settings = {name: f"{p.way}-way {p.shot}-shot" for p, name in reversed(fixed.items()) if p.replacement}
    settings = pd.Series(settings, dtype=object)
    settings = settings[settings.duplicated(keep=False)]
    if settings.empty:
        problem = f"has no two fixed evaluations of {' and '.join(trainings) or 'a training'} that differ in"
        remedy = "add some to its YAML, as configs/miniature.yaml has them"
        raise UserError(f"Study '{study.name}' {problem} queries_per_class only: {remedy}.")
    rows = load_rows(study, list(settings.index), trainings)
    setting = rows["evaluation"].map(settings)
    held = rows.groupby([setting, "dataset", "episode"])["evaluation"].transform("nunique")
    return rows.assign(evaluation=setting)[held == setting.map(settings.value_counts())].reset_index(drop=True)


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Writes a table without its index, numbers with six digits. Equal frames give equal bytes."""
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    return Path(path)


def read_published(table: int) -> pd.DataFrame:
    """The rows of one of the paper's Tables 1 to 4, with accuracies and intervals in [0, 1]."""
    rows = published(f"table-{table}-*.csv")
    return rows.assign(accuracy=rows["accuracy"] / 100, interval=rows["interval"] / 100)


def read_published_averages(table: int) -> pd.DataFrame:
    """The printed summary columns: `model`, `domain`, and `rank` (Table 1) or `accuracy` (Tables 3, 4)."""
    rows = published("averages.csv").query(f"source == 'Table {table}'").reset_index(drop=True)
    quantity, value = rows.pop("quantity").iloc[0], rows.pop("value")  # quantity: accuracy or rank
    return rows.assign(**{quantity: value / 100 if quantity == "accuracy" else value})


def published(pattern: str) -> pd.DataFrame:
    """One of the files in results/published, as it is."""
    folder = project_root() / "results" / "published"
    for file in folder.glob(pattern):
        return pd.read_csv(file)
    raise UserError(f"There is no {folder / pattern}, a table of the paper: run this in the project's folder.")

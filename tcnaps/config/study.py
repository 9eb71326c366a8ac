"""A study's YAML as frozen, validated objects. Unknown keys are errors that name the nearest."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import Field, PositiveInt, ValidationError, model_validator

from tcnaps.config.presets import with_preset
from tcnaps.config.settings import (
    AnyDataset,
    AnyProtocol,
    Clustering,
    Dataset,
    Decoding,
    Evaluation,
    FixedProtocol,
    MetaTraining,
    Name,
    NonNegativeInt,
    Pretraining,
    Refinement,
    Section,
    Statistics,
    TaskEncoder,
    TrainingName,
    VariableProtocol,
)
from tcnaps.method.variants import TRAININGS

__all__ = ["ConfigError", "FixedProtocol", "Study", "VariableProtocol", "load_study", "project_root"]


class ConfigError(ValueError):
    """A study's YAML says something that cannot be meant; the message names file, key and remedy."""


class Study(Section):
    """Everything a study needs: datasets, trainings, evaluations. One YAML file each.

    `preset` gives every switch of docs/fidelity.md that the YAML does not name.
    """

    name: Name
    preset: Literal["paper", "released"] = "paper"
    seed: NonNegativeInt = 0
    image_size: Annotated[int, Field(ge=32)] = 84  # pixels; the set encoder halves them five times
    precision: Literal["float32", "bfloat16"] = "float32"  # of the backbone; clustering has its own
    arithmetic: Literal["fast", "plain"] = "fast"  # of the networks; plain rounds as the released code does
    pixel_range: tuple[Literal[-1, 0], Literal[1]] = (-1, 1)  # what black and white become
    images_at_once: PositiveInt = 512  # in the backbone; fewer need less memory, and nothing else changes
    decoding: Decoding = Decoding()
    data_folder: str = "data"
    datasets: dict[Name, Dataset]
    imported: dict[str, str] = {}  # "backbone" or a training -> a checkpoint's file, in place of training it
    pretraining: Pretraining
    meta_training: MetaTraining
    trainings: tuple[TrainingName, ...] = tuple(TRAININGS)
    task_encoder: TaskEncoder = TaskEncoder()
    clustering: Clustering = Clustering()
    refinement: Refinement = Refinement()
    statistics: Statistics = Statistics()
    evaluations: Annotated[dict[Name, Evaluation], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, content: object) -> object:
        return with_preset(content) if isinstance(content, dict) else content

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        if self.name == "published":
            raise ValueError("name: results/published holds the paper's own tables; choose another name")
        lists = {
            "pretraining.datasets": self.pretraining.datasets,
            "meta_training.datasets": self.meta_training.datasets,
            "meta_training.validation_datasets": self.meta_training.validation_datasets,
        }
        lists |= {f"evaluations.{name}.datasets": evaluation.datasets for name, evaluation in self.evaluations.items()}
        for key, names in lists.items():
            if not names:
                raise ValueError(f"{key} is empty: name at least one of {', '.join(self.datasets)}")
            for name in names:
                if name not in self.datasets:
                    raise ValueError(f"{key}: '{name}' is not in datasets{_nearest(name, self.datasets)}")
            _no_repetition(key, names)
        for key in ("pretraining.datasets", "meta_training.datasets"):
            for name in lists[key]:
                if self.datasets[name].domain == "out":
                    raise ValueError(
                        f"{key}: '{name}' is out-of-domain and must not be trained on; "
                        f"set datasets.{name}.domain to 'in' or take it from the list"
                    )
        _no_repetition("trainings", self.trainings)
        importable = ("backbone", "support", "support_and_query")
        for name in self.imported:
            if name not in importable:
                raise ValueError(
                    f"imported: '{name}' can't be imported; there are published weights for {', '.join(importable)}"
                )
            if name != "backbone" and name not in self.trainings:
                raise ValueError(f"imported: '{name}' is not among the study's trainings")
        for name, evaluation in self.evaluations.items():
            _no_repetition(f"evaluations.{name}.trainings", evaluation.trainings)
            for training in evaluation.trainings:
                if training not in self.trainings:
                    raise ValueError(
                        f"evaluations.{name}.trainings: '{training}' is not among the study's "
                        f"trainings ({', '.join(self.trainings)})"
                    )
        return self

    @property
    def results_folder(self) -> Path:
        """results/<study>, from the project's root."""
        return project_root() / "results" / self.name

    @property
    def figures_folder(self) -> Path:
        """figures/<study>, from the project's root."""
        return project_root() / "figures" / self.name

    def tested_on(self, training: str) -> list[str]:
        """The datasets that a training is evaluated on, in their order in the study."""
        tested = {name for e in self.evaluations.values() if training in e.trainings for name in e.datasets}
        return [name for name in self.datasets if name in tested]

    def evaluations_of(self, trainings: Sequence[str], kind: str) -> dict[str, Evaluation]:
        """The evaluations that name all these trainings and whose protocol is of this kind, "fixed" or "variable".

        Of fixed ones that differ only in their number of queries, the one with the fewest.
        """
        chosen: dict[object, str] = {}
        for name, evaluation in self.evaluations.items():
            protocol = evaluation.protocol
            if protocol.kind != kind or not set(trainings) <= set(evaluation.trainings):
                continue
            setting = (protocol.way, protocol.shot) if isinstance(protocol, FixedProtocol) else name
            other = chosen.get(setting)
            if other is None or protocol.queries_per_class < self.evaluations[other].protocol.queries_per_class:
                chosen[setting] = name
        return {name: self.evaluations[name] for name in chosen.values()}


def project_root(start: Path | None = None) -> Path:
    """The nearest folder at or above `start` (the working folder) that holds the Snakefile; else `start`."""
    start = (start or Path.cwd()).resolve()
    return next((folder for folder in (start, *start.parents) if (folder / "Snakefile").exists()), start)


def load_study(path: str | Path) -> Study:
    """Reads and checks a study's YAML.

    Args:
        path: a file, relative to the working folder or to the project's root.

    Raises:
        ConfigError: the file is missing or is not YAML, or keys or values are wrong; the message names each.
    """
    file = next((f for f in (Path(path), project_root() / path) if f.is_file()), None)
    if file is None:
        known = sorted(f"configs/{f.name}" for f in (project_root() / "configs").glob("*.yaml"))
        raise ConfigError(f"No study at {path}. Studies there are: {', '.join(known) or 'none'}.")
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"{file} must hold the keys of a study ({', '.join(Study.model_fields)}), not {type(content).__name__}."
        )
    try:
        return Study.model_validate(content, strict=False)
    except ValidationError as error:
        raise ConfigError(f"{file}:\n" + "\n".join(f"  {_explain(e)}" for e in error.errors())) from error


class _Loader(yaml.SafeLoader):
    """YAML in which a key named twice is an error, instead of silently losing the first."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        for position, (key, _) in enumerate(node.value):
            if key.value in keys[:position]:
                problem = f"'{key.value}' is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        return super().construct_mapping(node, deep)


def _no_repetition(key: str, names: tuple[str, ...]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{key}: '{name}' is there twice")


def _explain(error: dict) -> str:
    loc = _without_tags(error["loc"])
    place = ".".join(str(part) for part in loc)
    if error["type"] == "extra_forbidden":
        known = _fields_beside(error["loc"])
        return f"{place}: there is no such key{_nearest(str(loc[-1]), known)}"
    if error["type"] == "missing":
        return f"{place}: this key is missing"
    message = error["msg"].removeprefix("Value error, ")
    if not place or error["type"] == "value_error":
        return message
    return f"{place}: {message} (got {error['input']!r})"


# Which section a source or a kind of protocol stands for; pydantic names it in an error's place.
_TAGGED = {
    get_args(section.model_fields[key].annotation)[0]: section
    for key, union in (("source", AnyDataset), ("kind", AnyProtocol))
    for section in get_args(union)
}


def _is_tag(loc: tuple, position: int) -> bool:
    if loc[position] not in _TAGGED or position == 0:
        return False
    return str(loc[position - 1]).endswith("protocol") or (loc[0] == "datasets" and position == 2)


def _without_tags(loc: tuple) -> list:
    return [part for position, part in enumerate(loc) if not _is_tag(loc, position)]


def _fields_beside(loc: tuple) -> list[str]:
    """The keys allowed where the last element of `loc` stands."""
    section: object = Study
    for position, part in enumerate(loc[:-1]):
        if _is_tag(loc, position):
            section = _TAGGED[part]
        elif isinstance(section, type) and part in section.model_fields:
            section = section.model_fields[part].annotation
            arguments = getattr(section, "__args__", ())
            section = next((a for a in arguments if isinstance(a, type) and issubclass(a, Section)), section)
    return list(getattr(section, "model_fields", ()))


def _nearest(name: str, known) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(known)}"

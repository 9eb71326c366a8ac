"""A study's YAML as frozen, validated objects."""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, PositiveInt, ValidationError, model_validator

from tcnaps.config import settings
from tcnaps.config.errors import ConfigError, nearest
from tcnaps.config.fingerprint import code_version
from tcnaps.config.storage import digest_of
from tcnaps.method.variants import ALL_TRAININGS, TRAININGS

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Published = Literal["backbone", "support", "support_and_query"]  # networks whose weights the authors published

# The settings' defaults are the paper's, so presets hold only what differs from them. Some values depend on the
# protocol: Meta-Dataset's episodes have variable way and shot, those of mini- and tiered-ImageNet fixed way and shot.
PRESETS: dict[str, dict[str, dict]] = {
    "paper": {"fixed": {"meta_training": {"validate_every": 2_000}, "refinement": {"maximum_steps": 10}}},
    "released": {
        "both": {
            "clustering": {"task_covariance_divisor": "n-1", "simple_class_covariance_divisor": "n-1"},
            "task_encoder": {"lstm_layers": 2},
            "meta_training": {"query_loss": "sum", "film_penalty": 1e-3, "keep_best_by": "half of the datasets"},
            "arithmetic": "plain",
        },
        "variable": {
            "meta_training": {
                "protocol": {"maximum_way": 40, "maximum_support_size": 400},
                "validation_protocol": {"kind": "variable"},
            },
            "decoding": {"jpeg_dct": "fast", "resampling": "aligned corners"},
        },
        "fixed": {"meta_training": {"validate_every": 1_000}, "pixel_range": [0, 1]},
    },
}


class Study(settings.Section):
    """Everything a study needs: datasets, trainings, evaluations. Each study is one YAML file."""

    name: settings.Name
    preset: Literal["paper", "released"] = "paper"  # sets every switch of docs/fidelity.md that the YAML does not name
    seed: Seed = 0  # seeds the test episodes, and the trainings unless `replicates` lists seeds
    replicates: PositiveInt | Annotated[tuple[Seed, ...], Field(min_length=1)] = 1  # a number of trainings, or seeds
    replicate_backbone: bool = True  # every replicate pretrains its own backbone
    image_size: Annotated[int, Field(ge=32, le=4096)] = 84  # pixels; the set encoder halves them five times
    precision: settings.Precision = "float32"  # the backbone's; `clustering.dtype` is the clustering's
    arithmetic: Literal["fast", "plain"] = "fast"  # "plain" rounds as the released code does; docs/speed.md
    pixel_range: tuple[Literal[-1, 0], Literal[1]] = (-1, 1)  # values of black and white
    images_at_once: PositiveInt = 512  # images per pass through the backbone; affects memory alone
    decoding: settings.Decoding = settings.Decoding()
    data_folder: str = "data"
    datasets: dict[settings.Name, settings.Dataset]
    imported: dict[Published, str] = {}  # network -> the released file to import instead of training it
    pretraining: settings.Pretraining
    meta_training: settings.MetaTraining
    trainings: tuple[str, ...] = tuple(TRAININGS)
    task_encoder: settings.TaskEncoder = settings.TaskEncoder()
    clustering: settings.Clustering = settings.Clustering()
    refinement: settings.Refinement = settings.Refinement()
    evaluations: Annotated[dict[settings.Name, settings.Evaluation], Field(min_length=1)]
    claims: settings.Claims = settings.Claims()
    replicate: int = Field(0, exclude=True)  # not a key of the YAML; see `of_replicate`
    root: Path | None = Field(None, exclude=True)  # not a key either: where results/ lies; None: the project's root

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, content: object) -> object:
        """What the study sets itself overrides its preset."""
        if not isinstance(content, dict):
            return content
        preset = PRESETS.get(str(content.get("preset", "paper")), {})  # validation refuses an unknown name
        try:
            kind = str(content["meta_training"]["protocol"]["kind"])
        except (KeyError, TypeError, IndexError):  # validation says what is missing
            kind = ""
        return merged(merged(preset.get("both", {}), preset.get(kind, {})), content)

    def model_post_init(self, context: object) -> None:
        if self.name in ("published", "reference"):
            tables = "results/published holds the paper's own tables, results/reference those of committed runs"
            raise ValueError(f"name: {tables}; choose another name")
        if "all" in self.datasets:
            raise ValueError("datasets: 'all' stands for their mean in tables; choose another name")
        training, described = self.meta_training, "among the study's trainings"
        for key in ("pretraining", "meta_training"):
            names = getattr(self, key).datasets
            _check_names(f"{key}.datasets", names, self.datasets, "in datasets")
            if outside := [name for name in names if self.datasets[name].domain == "out"]:
                raise ValueError(f"{key}.datasets: '{outside[0]}' must not be trained on, for its domain is 'out'")
        _check_names("meta_training.validation_datasets", training.validation_datasets, self.datasets, "in datasets")
        if max(self.pretraining.image_sizes, default=0) > self.image_size:
            raise ValueError(f"pretraining.image_sizes: no size may exceed image_size, {self.image_size}")
        _check_names("trainings", self.trainings, ALL_TRAININGS, "a training")
        for name in self.trainings if self.clustering.scale == "auto" else ():
            if "scale" in ALL_TRAININGS[name].learned:
                raise ValueError(f"clustering.scale: '{name}' learns its scale; give a number to start from")
        for name, evaluation in self.evaluations.items():
            _check_names(f"evaluations.{name}.datasets", evaluation.datasets, self.datasets, "in datasets")
            _check_names(f"evaluations.{name}.trainings", evaluation.trainings, self.trainings, described)
        if self.imported:
            _check_names("imported", tuple(self.imported), ("backbone", *self.trainings), described)
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("replicates: a seed is there twice, so two replicates would be the same")
        if len(self.seeds) > 1 and self.imported and (set(self.imported) != {"backbone"} or self.replicate_backbone):
            remedy = "set replicates to 1, or import only the backbone and set replicate_backbone to false"
            raise ValueError(f"replicates: what is imported can't be trained again from other seeds; {remedy}")

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the trainings, one per replicate."""
        if isinstance(self.replicates, tuple):
            return self.replicates
        return tuple(range(self.seed, self.seed + self.replicates))

    def of_replicate(self, number: int) -> "Study":
        """The same study with another replicate, counted from 0: other training seeds and result folders."""
        if number not in range(len(self.seeds)):
            raise ConfigError(f"Study '{self.name}' has the replicates 0 to {len(self.seeds) - 1}, not {number}.")
        return self.model_copy(update={"replicate": number})

    @property
    def training_seed(self) -> int:
        return self.seeds[self.replicate]

    @property
    def backbone_seed(self) -> int:
        """The seed of the backbone that this replicate's meta-training starts from."""
        return self.training_seed if self.replicate_backbone else self.seeds[0]

    @property
    def results_folder(self) -> Path:
        """results/<study> below the project's root; later replicates have subfolders."""
        place = (self.root or project_root()) / "results" / self.name
        return place / (f"replicate-{self.replicate}" if self.replicate else "")

    @property
    def figures_folder(self) -> Path:
        """Like `results_folder`, for figures."""
        return project_root() / "figures" / self.name / (f"replicate-{self.replicate}" if self.replicate else "")

    @property
    def origin(self) -> dict[str, str]:
        """What a result was made from, for the metadata of figures."""
        return {
            "Study": self.name,
            "Digest": digest_of(self.model_dump(mode="json"))[:16],
            "Code": code_version(),
            "Seed": f"{self.seed}, of the trainings {', '.join(map(str, self.seeds))}",
        }

    def tested_on(self, training: str) -> list[str]:
        """The datasets that a training is evaluated on, in the study's order."""
        tested = {name for e in self.evaluations.values() if training in e.trainings for name in e.datasets}
        return [name for name in self.datasets if name in tested]

    def evaluations_of(
        self, trainings: Sequence[str], kind: str | None = None, before_training: bool = False
    ) -> dict[str, settings.Evaluation]:
        """The evaluations that include all these trainings; `kind` is "fixed", "variable", "unequal" or None.

        Evaluations with a `query_concentration` have the kind "unequal"; None stands for the other two kinds.
        """
        kinds = ("fixed", "variable") if kind is None else (kind,)
        return {
            name: each
            for name, each in self.evaluations.items()
            if ("unequal" if each.protocol.query_concentration else each.protocol.kind) in kinds
            and set(trainings) <= set(each.trainings)
            and each.before_training == before_training
        }


def project_root() -> Path:
    """The nearest folder at or above the working folder that holds the Snakefile; else the working folder."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "Snakefile").exists()), here)


def load_study(path: str | Path, replicate: int = 0) -> Study:
    """Reads and checks the YAML of `study_file`; a ConfigError says what is wrong. Replicates are counted from 0."""
    file = study_file(path)
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)
    except Exception as error:  # of many kinds, for PyYAML passes on Python's own
        raise ConfigError(f"{file} is not valid YAML in UTF-8: {error}") from None
    try:
        study = Study.model_validate(content, strict=False)
    except ValidationError as error:
        raise ConfigError("\n  ".join([f"{file}:", *settings.explained(error)])) from None
    return study.of_replicate(replicate)


def study_file(path: str | Path) -> Path:
    """The file of a study, looked for in the working folder, then in the project's root."""
    for file in (Path(path), project_root() / path):
        if os.path.isfile(file):  # unlike Path.is_file, False for a path that is too long
            return file
    known = ", ".join(sorted(f"configs/{file.name}" for file in (project_root() / "configs").glob("*.yaml")))
    raise ConfigError(f"No study at {str(path)[:300]}. Studies there are: {known or 'none. Go to the project folder'}.")


def merged(below: Any, above: Any) -> Any:
    """Two nested dictionaries merged, section by section; values of `above` win."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: merged(below.get(key), value) for key, value in above.items()}


class _Loader(yaml.CSafeLoader):  # five times as fast as the one in Python
    """Refuses YAML with a duplicate key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if again := [key for k, key in enumerate(keys) if key.value in (before.value for before in keys[:k])]:
            raise yaml.MarkedYAMLError(problem=f"'{again[0].value}' is there twice", problem_mark=again[0].start_mark)
        return super().construct_mapping(node, deep)


def _check_names(key: str, names: Sequence[str], known: Collection[str], description: str) -> None:
    """Raises ValueError unless there are names, all of them known and different."""
    if not names:
        raise ValueError(f"{key} is empty: name at least one of {', '.join(known)}")
    for name, number in Counter(names).items():
        if name not in known:
            raise ValueError(f"{key}: '{name}' is not {description}{nearest(name, known)}")
        if number > 1:
            raise ValueError(f"{key}: '{name}' is there twice")

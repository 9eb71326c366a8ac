"""The sections of a study's YAML as frozen, validated objects; `tcnaps.config` puts them together."""

import reprlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_core import PydanticCustomError

from tcnaps.config.errors import nearest

PROCESSOR = Path("/proc/cpuinfo")  # Linux alone has it


def _resolved(precision: str) -> str:
    """Replaces "auto" by the faster precision here: bfloat16 needs a processor with instructions for it."""
    flags = PROCESSOR.read_text().split() if PROCESSOR.exists() else ()
    faster = "float32" if {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags) else "bfloat16"
    return faster if precision == "auto" else precision


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]  # part of file names
Precision = Annotated[Literal["float32", "bfloat16", "auto"], AfterValidator(_resolved)]
Way = Annotated[int, Field(ge=2)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Resampling = Literal["bilinear", "lanczos", "aligned corners"]


class Section(BaseModel):
    """A section of the YAML. An unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: object) -> object:
        known = [name for name, field in cls.model_fields.items() if not field.exclude]
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                context = {"keys": [key], "nearest": nearest(key, known)}
                raise PydanticCustomError("unknown_key", "there is no such key{nearest}", context)
        return values


def explained(error: ValidationError) -> list[str]:
    """One line for each error in a section: the key's path and pydantic's message."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(map(str, [*problem["loc"], *problem.get("ctx", {}).get("keys", [])]))
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] not in ("unknown_key", "missing", "value_error"):
            message += f" (got {reprlib.repr(problem['input'])})"
        lines.append(f"{key}: {message}" if key else message)
    return lines


class _DatasetSection(Section):
    domain: Literal["in", "out"]  # "in": its training classes may be trained on; "out": for testing alone
    images: Literal["real", "rendered"] = "real"  # means and claims keep the two apart


class Miniature(_DatasetSection):
    source: Literal["miniature"]  # a built-in dataset, named by its key


class _FilesSection(_DatasetSection):
    path: str  # relative to the project's root, or absolute
    resampling: Resampling | None = None  # default: the study's decoding.resampling


class Records(_FilesSection):
    source: Literal["records"]  # Meta-Dataset's TFRecords of one dataset: the folder with its dataset_spec.json
    images_per_class: PositiveInt | None = None  # upper limit; the images are spread evenly over a class's file


class Folder(_FilesSection):
    source: Literal["folder"]  # split/class/*, or class/* with a split file or with fractions of the classes
    splits: str | None = None  # a CSV, a folder of three CSVs, or a JSON in Meta-Dataset's format
    fractions: tuple[Fraction, Fraction, Fraction] | None = None  # shares of the classes for train, valid and test
    superclasses: bool = False  # class folders lie in folders of their superclass


AnyDataset = Miniature | Records | Folder
Dataset = Annotated[AnyDataset, Field(discriminator="source")]


class _ProtocolSection(Section):
    queries_per_class: PositiveInt = 10
    # Dirichlet's α: classes have random shares of the queries, the largest `queries_per_class`. Default: equal numbers.
    query_concentration: PositiveFloat | None = None


class FixedProtocol(_ProtocolSection):
    """Fixed way and shot, as for mini- and tiered-ImageNet (appendix A.2)."""

    kind: Literal["fixed"] = "fixed"
    way: Way
    shot: PositiveInt
    replacement: bool = True  # False: no image is in two episodes of a split (Lafargue et al. 2024, arXiv 2409.02850)


class VariableProtocol(_ProtocolSection):
    """Variable way and shot (Triantafillou et al. 2020, section 3.2). Defaults are Meta-Dataset's."""

    kind: Literal["variable"] = "variable"
    minimum_way: Way = 5
    maximum_way: Way = 50
    maximum_support_size: PositiveInt = 500
    maximum_support_per_class: PositiveInt = 100
    maximum_span: PositiveInt = 392  # nodes of ImageNet's hierarchy with more classes below them are not drawn
    shots: Literal["meta-dataset", "uniform"] = "meta-dataset"  # "uniform": 1 to 100 per class, as in section 4.1

    def model_post_init(self, context: object) -> None:
        if self.maximum_way < self.minimum_way:
            raise ValueError(f"maximum_way {self.maximum_way} is below minimum_way {self.minimum_way}")
        if (size := self.maximum_support_size) < (way := self.maximum_way):
            raise ValueError(f"maximum_support_size {size} is below maximum_way {way}: every class needs an image")


AnyProtocol = FixedProtocol | VariableProtocol
Protocol = Annotated[AnyProtocol, Field(discriminator="kind")]


class Clustering(Section):
    """The refinement loop's options that a study may change; `tcnaps.method.head.Head` explains them."""

    identity_weight: PositiveFloat = 1.0
    scale: PositiveFloat | Literal["auto"] | None = None  # default: that of `Training.head`, 1 or 1/2
    task_covariance_divisor: Literal["n", "n-1"] = "n"
    simple_class_covariance_divisor: Literal["n", "n-1"] = "n"  # for Simple CNAPS, which uses the support set alone
    dtype: Literal["float32", "float64"] = "float32"


class TaskEncoder(Section):
    """The network that turns an episode into a task embedding (section 3.3)."""

    lstm_layers: Literal[1, 2] = 1


class Decoding(Section):
    """How image files become pixels. A dataset's own `resampling` goes before the study's."""

    jpeg_dct: Literal["accurate", "fast"] = "accurate"  # "fast" is TensorFlow's
    resampling: Literal["bilinear", "aligned corners"] = "bilinear"  # "bilinear" averages when it shrinks an image


class Pretraining(Section):
    """Supervised training of the backbone (appendix A.3)."""

    datasets: tuple[str, ...]
    epochs: PositiveInt = 125
    image_sizes: dict[Annotated[int, Field(ge=16)], PositiveInt] = {}  # size in pixels -> epochs; smallest first
    batch_size: PositiveInt = 256
    learning_rate: PositiveFloat = 0.1
    momentum: Fraction = 0.9
    weight_decay: NonNegativeFloat = 1e-4
    schedule: Literal["step", "one cycle"] = "step"  # "one cycle": up to the learning rate, then down to 0
    learning_rate_drop_every: PositiveInt = 25  # schedule "step": epochs between divisions by 10
    colour_jitter: Fraction = 0.4  # largest relative change of brightness, contrast and saturation
    horizontal_flip: bool = True  # switch off where mirror images belong to other classes, as with letters
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of each label spread over all classes
    valid_fraction: Fraction = 0.05  # share of each class held out to report accuracy on

    def model_post_init(self, context: object) -> None:
        if self.image_sizes and (total := sum(self.image_sizes.values())) != self.epochs:
            raise ValueError(f"image_sizes holds {total} epochs, but epochs is {self.epochs}")

    def size_in_epoch(self, epoch: int, image_size: int) -> int:
        """Side in pixels of the training images in an epoch, counted from 0; without `image_sizes`, `image_size`."""
        sizes = [size for size, epochs in sorted(self.image_sizes.items()) for _ in range(epochs)]
        return sizes[epoch] if sizes else image_size


class MetaTraining(Section):
    """Episodic training of the task encoder and FiLM generator (appendix A.3). Defaults are the paper's."""

    datasets: tuple[str, ...]
    protocol: Protocol
    episodes: PositiveInt = 110_000
    episodes_per_step: PositiveInt = 16
    learning_rate: PositiveFloat = 5e-4
    schedule: Literal["constant", "cosine"] = "constant"  # "cosine": decays to 0
    head_learning_rate: PositiveFloat | None = None  # for numbers learned in the head; default: learning_rate
    query_loss: Literal["mean", "sum"] = "mean"  # over an episode's queries; episodes are always averaged
    film_penalty: NonNegativeFloat = 0.0  # weight of Σs² over the FiLM regularisers, in every episode's loss
    validate_every: PositiveInt = 10_000  # episodes
    validation_datasets: tuple[str, ...]
    validation_episodes: PositiveInt = 200  # per dataset
    validation_protocol: Protocol | None = None  # default: `protocol`
    validate_refined: bool = False  # refine in validation, by the stopping rule
    keep_best_by: Literal["mean accuracy", "half of the datasets"] = "mean accuracy"

    def model_post_init(self, context: object) -> None:
        for protocol in (self.protocol, self.validation_protocol):
            if isinstance(protocol, FixedProtocol) and not protocol.replacement:
                raise ValueError("meta-training needs replacement: true; false is for evaluations")


class Evaluation(Section):
    """Some trainings evaluated on test episodes of some datasets, all with one protocol."""

    protocol: Protocol
    datasets: tuple[str, ...]
    trainings: tuple[str, ...]
    episodes: PositiveInt = 600
    before_training: bool = False  # evaluate the models as they are before meta-training


class Refinement(Section):
    """How many refinement steps are recorded, and the stopping rule that is applied to them later (section 4.2)."""

    recorded_steps: PositiveInt = 10
    minimum_steps: NonNegativeInt = 2
    maximum_steps: NonNegativeInt = 4

    def model_post_init(self, context: object) -> None:
        if self.maximum_steps > self.recorded_steps:
            steps = f"maximum_steps is {self.maximum_steps}, but only {self.recorded_steps} steps are recorded"
            raise ValueError(f"{steps}: raise recorded_steps or lower maximum_steps")

    @property
    def limits(self) -> tuple[int, int]:
        return self.minimum_steps, self.maximum_steps


class Claims(Section):
    """How the paper's claims are decided; set it before the study is run."""

    margin: PositiveFloat = 0.5  # points; "no effect" is said of a contrast whose whole interval lies within ± margin
    more_classes: str | None = None  # for C8: YAML of a study like this one, with a backbone of more classes

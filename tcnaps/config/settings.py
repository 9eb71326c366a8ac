"""The sections of a study's YAML as frozen, validated objects; `tcnaps.config` puts them together."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_core import PydanticCustomError

from tcnaps.config.errors import nearest

PROCESSOR = Path("/proc/cpuinfo")


def _for_this_machine(precision: str) -> str:
    """Of `auto`, what suits this machine: without instructions for bfloat16, that is slower than float32."""
    if precision != "auto":
        return precision
    flags = PROCESSOR.read_text().split() if PROCESSOR.exists() else ()  # no Linux: float32
    return "bfloat16" if {"avx512_bf16", "amx_bf16", "bf16"} & set(flags) else "float32"


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]  # names become names of files
# "auto" becomes what suits this machine when the study is read, so that all that is written names one of the two.
Precision = Annotated[Literal["float32", "bfloat16", "auto"], AfterValidator(_for_this_machine)]
Way = Annotated[int, Field(ge=2)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A section of the YAML. Unknown keys are errors that name the nearest."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: object) -> object:
        for key in values if isinstance(values, dict) else ():
            if key not in cls.model_fields:
                context = {"key": str(key), "nearest": nearest(key, cls.model_fields)}
                raise PydanticCustomError("unknown_key", "there is no such key{nearest}", context)
        return values


Resampling = Literal["bilinear", "lanczos", "aligned corners"]


class _DatasetSection(Section):
    """`domain` says whether the training classes may be trained on."""

    domain: Literal["in", "out"]


class Miniature(_DatasetSection):
    """A dataset of the built-in miniature, named by its key."""

    source: Literal["miniature"]


class _FilesSection(_DatasetSection):
    """What all datasets read from files have in common. A relative path is taken from the project's root."""

    path: str
    resampling: Resampling | None = None  # default: the study's decoding.resampling
    unreadable: Literal["leave out", "refuse"] = "leave out"  # images that can't be read are listed in any case


class Records(_FilesSection):
    """Meta-Dataset's TFRecords of one dataset: the folder with its dataset_spec.json."""

    source: Literal["records"]
    images_per_class: PositiveInt | None = None  # at most so many, spread evenly over a class's file


class Folder(_FilesSection):
    """Folders of images: split/class/*, or class/* with a split file or with fractions of the classes."""

    source: Literal["folder"]
    splits: str | None = None  # a CSV, a folder of three, or a JSON of Meta-Dataset's kind
    fractions: tuple[Fraction, Fraction, Fraction] | None = None  # of the classes, for train, valid and test
    superclasses: bool = False  # one level more: class folders lie in folders of their superclass


class MiniImageNet(_FilesSection):
    """mini-ImageNet: split CSVs beside a folder of images, or class folders per split."""

    source: Literal["mini-imagenet"]


class TieredImageNet(_FilesSection):
    """tiered-ImageNet: class folders per split, or an ImageNet folder with tiered's class lists."""

    source: Literal["tiered-imagenet"]
    class_lists: str | None = None  # the folder with train.csv, val.csv and test.csv


class FETI(_FilesSection):
    """ImageNet's classes outside the test classes of mini- and tiered-ImageNet (appendix A.4): 824 or 825 of them."""

    source: Literal["feti"]
    test_classes: tuple[str, ...]  # files that list the test classes of both


class Torchvision(_FilesSection):
    """A dataset that torchvision reads; `path` is its root."""

    source: Literal["torchvision"]
    name: Literal[
        "Omniglot", "FGVCAircraft", "DTD", "Flowers102", "GTSRB", "MNIST", "CIFAR10", "CIFAR100", "CocoDetection"
    ]
    download: bool = False
    splits: str | None = None  # a split file of class names; without, all are for testing, but Omniglot's own


AnyDataset = Miniature | Records | Folder | MiniImageNet | TieredImageNet | FETI | Torchvision
Dataset = Annotated[AnyDataset, Field(discriminator="source")]


class FixedProtocol(Section):
    """Fixed way and shot, as for mini- and tiered-ImageNet (appendix A.2)."""

    kind: Literal["fixed"] = "fixed"
    way: Way
    shot: PositiveInt
    queries_per_class: PositiveInt = 10


class VariableProtocol(Section):
    """Variable way and shot (Triantafillou et al. 2020, section 3.2). Defaults are Meta-Dataset's."""

    kind: Literal["variable"] = "variable"
    minimum_way: Way = 5
    maximum_way: Way = 50
    queries_per_class: PositiveInt = 10
    maximum_support_size: PositiveInt = 500
    maximum_support_per_class: PositiveInt = 100
    maximum_span: PositiveInt = 392  # classes below a node of ImageNet's hierarchy, for it to be drawn
    shots: Literal["meta-dataset", "uniform"] = "meta-dataset"  # uniform: 1 to 100 per class, as section 4.1 says

    @model_validator(mode="after")
    def _ordered(self) -> "VariableProtocol":
        if self.maximum_way < self.minimum_way:
            raise ValueError(f"maximum_way {self.maximum_way} is below minimum_way {self.minimum_way}")
        if self.maximum_support_size < self.maximum_way:
            sizes = f"maximum_support_size {self.maximum_support_size} is below maximum_way {self.maximum_way}"
            raise ValueError(f"{sizes}: every class needs a support image")
        return self


AnyProtocol = FixedProtocol | VariableProtocol
Protocol = Annotated[AnyProtocol, Field(discriminator="kind")]


class Clustering(Section):
    """The refinement loop's options that a study may change; `tcnaps.method.clustering.Head` says what they mean."""

    identity_weight: PositiveFloat = 1.0
    scale: PositiveFloat | Literal["auto"] | None = None  # None: the training's own, 1, or ½ with the log-determinant
    task_covariance_divisor: Literal["n", "n-1"] = "n"
    simple_class_covariance_divisor: Literal["n", "n-1"] = "n"  # of Simple CNAPS, by the support set alone
    dtype: Literal["float32", "float64"] = "float32"


class TaskEncoder(Section):
    """The network that turns an episode into a task embedding (section 3.3)."""

    lstm_layers: Literal[1, 2] = 1
    statistics: Literal["batch", "running"] = "batch"  # what its batch-norms normalise with once training has ended


class Decoding(Section):
    """How image files become pixels. MNIST and CIFAR are always resized by Lanczos, as in the authors' preparation."""

    jpeg_dct: Literal["accurate", "fast"] = "accurate"  # fast: TensorFlow's
    resampling: Literal["bilinear", "aligned corners"] = "bilinear"  # bilinear averages where it shrinks


class Statistics(Section):
    """How intervals and ranks in tables are computed; `tcnaps.evaluation.statistics` says what the names mean."""

    interval: Literal["student", "released"] = "student"
    ranks: Literal["plain", "significant"] = "plain"


class Pretraining(Section):
    """Supervised training of the backbone (appendix A.3)."""

    datasets: tuple[str, ...]
    epochs: PositiveInt = 125
    image_sizes: dict[Annotated[int, Field(ge=16)], PositiveInt] = {}  # pixels: epochs, smallest first
    batch_size: PositiveInt = 256
    learning_rate: PositiveFloat = 0.1
    momentum: Fraction = 0.9
    weight_decay: NonNegativeFloat = 1e-4
    schedule: Literal["step", "one cycle"] = "step"  # one cycle: up to the learning rate, then down to 0
    learning_rate_drop_every: PositiveInt = 25  # epochs between divisions by 10, under the schedule "step"
    colour_jitter: Fraction = 0.4  # largest relative change of brightness, contrast and saturation
    horizontal_flip: bool = True  # off where mirror images are other classes, as with letters
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of each label spread over all classes
    valid_fraction: Fraction = 0.05  # images of each class held out to report accuracy on

    @model_validator(mode="after")
    def _sizes_fit(self) -> "Pretraining":
        sizes = self.image_sizes
        if sizes and sum(sizes.values()) != self.epochs:
            raise ValueError(f"image_sizes holds {sum(sizes.values())} epochs, but epochs is {self.epochs}")
        return self

    def size_in_epoch(self, epoch: int, image_size: int) -> int:
        """Pixels of the training images in an epoch, counted from 0; `image_size` where no sizes are named."""
        for size, epochs in sorted(self.image_sizes.items()):
            if epoch < epochs:
                return size
            epoch -= epochs
        return image_size


class MetaTraining(Section):
    """Episodic training of the task encoder and FiLM generator (appendix A.3). Defaults are the paper's."""

    datasets: tuple[str, ...]
    protocol: Protocol
    episodes: PositiveInt = 110_000
    episodes_per_step: PositiveInt = 16
    learning_rate: PositiveFloat = 5e-4
    schedule: Literal["constant", "cosine"] = "constant"  # cosine: from the learning rate down to 0, along half a wave
    head_learning_rate: PositiveFloat | None = None  # of numbers learned in the head; None: learning_rate
    query_loss: Literal["mean", "sum"] = "mean"  # of the queries' cross-entropies, averaged over episodes
    support_gradients: PositiveInt | None = None  # support images back-propagated through (LITE); default: all
    film_penalty: NonNegativeFloat = 0.0  # times Σs² of the FiLM regularisers, for every episode
    validate_every: PositiveInt = 10_000  # episodes
    validation_datasets: tuple[str, ...]
    validation_episodes: PositiveInt = 200  # per dataset
    validation_protocol: Protocol | None = None  # default: that of training
    validate_refined: bool = False  # whether validation refines by the stopping rule
    keep_best_by: Literal["mean accuracy", "half of the datasets"] = "mean accuracy"


class Evaluation(Section):
    """One protocol evaluated on test episodes of some datasets with some trainings."""

    protocol: Protocol
    datasets: tuple[str, ...]
    trainings: tuple[str, ...]
    episodes: PositiveInt = 600
    before_training: bool = False  # the models that meta-training starts from, in place of those it ends in


class Refinement(Section):
    """How many refinement steps are recorded, and the stopping rule applied to the record (section 4.2)."""

    recorded_steps: PositiveInt = 10
    minimum_steps: NonNegativeInt = 2
    maximum_steps: NonNegativeInt = 4

    @model_validator(mode="after")
    def _recorded(self) -> "Refinement":
        if self.maximum_steps > self.recorded_steps:
            counts = f"maximum_steps {self.maximum_steps} exceeds recorded_steps {self.recorded_steps}"
            raise ValueError(f"{counts}: the rule is applied to recorded steps; raise recorded_steps")
        return self

    @property
    def limits(self) -> tuple[int, int]:
        """The stopping rule's minimum and maximum."""
        return self.minimum_steps, self.maximum_steps

"""The sections of a study's YAML as frozen, validated objects; `tcnaps.config` puts them together."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_core import PydanticCustomError

from tcnaps.config.errors import nearest

PROCESSOR = Path("/proc/cpuinfo")  # Linux alone has it
GPU = Path("/dev/nvidia0")


def computes_in_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16. Without them a step takes a hundred times as long."""
    flags = PROCESSOR.read_text().split() if PROCESSOR.exists() else ()
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)


def is_slow_in_bfloat16() -> bool:
    """Whether this is a processor without instructions for bfloat16, in a machine without a GPU."""
    return PROCESSOR.exists() and not GPU.exists() and not computes_in_bfloat16()


def _resolved(precision: str) -> str:
    """Replaces "auto" by the faster precision on this machine, so that results name the one they were made in."""
    if precision == "auto":
        return "bfloat16" if computes_in_bfloat16() else "float32"
    return precision


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]  # part of file names
Precision = Annotated[Literal["float32", "bfloat16", "auto"], AfterValidator(_resolved)]
Way = Annotated[int, Field(ge=2)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A section of the YAML. An unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that the section may have in the YAML."""
        return [name for name, field in cls.model_fields.items() if not field.exclude]

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: object) -> object:
        for key in values if isinstance(values, dict) else ():
            if key not in cls.keys():
                context = {"key": str(key), "nearest": nearest(key, cls.keys())}
                raise PydanticCustomError("unknown_key", "there is no such key{nearest}", context)
        return values


Resampling = Literal["bilinear", "lanczos", "aligned corners"]


class _DatasetSection(Section):
    domain: Literal["in", "out"]  # "in": its training classes may be trained on; "out": for testing alone


class Miniature(_DatasetSection):
    """A dataset of the built-in miniature, named by its key."""

    source: Literal["miniature"]


class _FilesSection(_DatasetSection):
    """The keys that all datasets of files share."""

    path: str  # relative to the project's root, or absolute
    resampling: Resampling | None = None  # default: the study's decoding.resampling
    unreadable: Literal["leave out", "refuse"] = "leave out"  # unreadable images are listed in either case


class Records(_FilesSection):
    """Meta-Dataset's TFRecords of one dataset: the folder with its dataset_spec.json."""

    source: Literal["records"]
    images_per_class: PositiveInt | None = None  # upper limit; the images are spread evenly over a class's file


class Folder(_FilesSection):
    """Folders of images: split/class/*, or class/* with a split file or with fractions of the classes."""

    source: Literal["folder"]
    splits: str | None = None  # a CSV, a folder of three CSVs, or a JSON in Meta-Dataset's format
    fractions: tuple[Fraction, Fraction, Fraction] | None = None  # shares of the classes for train, valid and test
    superclasses: bool = False  # class folders lie in folders of their superclass


class MiniImageNet(_FilesSection):
    """mini-ImageNet: split CSVs beside a folder of images, or class folders per split."""

    source: Literal["mini-imagenet"]


class TieredImageNet(_FilesSection):
    """tiered-ImageNet: class folders per split, or an ImageNet folder with tiered's class lists."""

    source: Literal["tiered-imagenet"]
    class_lists: str | None = None  # a folder with train.csv, val.csv and test.csv


class FETI(_FilesSection):
    """ImageNet's classes without the test classes of mini- and tiered-ImageNet (appendix A.4): 824 or 825 classes."""

    source: Literal["feti"]
    test_classes: tuple[str, ...]  # files that list the test classes of both benchmarks


class Torchvision(_FilesSection):
    """A dataset that torchvision reads; `path` is its root."""

    source: Literal["torchvision"]
    name: Literal[
        "Omniglot", "FGVCAircraft", "DTD", "Flowers102", "GTSRB", "MNIST", "CIFAR10", "CIFAR100", "CocoDetection"
    ]
    download: bool = False
    splits: str | None = None  # a split file; without it all classes are for testing, except Omniglot's background set


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
    maximum_span: PositiveInt = 392  # nodes of ImageNet's hierarchy with more classes below them are not drawn
    shots: Literal["meta-dataset", "uniform"] = "meta-dataset"  # "uniform": 1 to 100 per class, as in section 4.1

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
    """The refinement loop's options that a study may change; `tcnaps.method.head.Head` explains them."""

    identity_weight: PositiveFloat = 1.0
    scale: PositiveFloat | Literal["auto"] | None = None  # default: the training's, 1 or, with log-determinant, 1/2
    task_covariance_divisor: Literal["n", "n-1"] = "n"
    simple_class_covariance_divisor: Literal["n", "n-1"] = "n"  # for Simple CNAPS, which uses the support set alone
    dtype: Literal["float32", "float64"] = "float32"


class TaskEncoder(Section):
    """The network that turns an episode into a task embedding (section 3.3)."""

    lstm_layers: Literal[1, 2] = 1


class Decoding(Section):
    """How image files become pixels. MNIST and CIFAR are always resized by Lanczos, as in the authors' preparation."""

    jpeg_dct: Literal["accurate", "fast"] = "accurate"  # "fast" is TensorFlow's
    resampling: Literal["bilinear", "aligned corners"] = "bilinear"  # "bilinear" averages when it shrinks an image


class Statistics(Section):
    """How intervals and ranks in tables are computed; `tcnaps.evaluation.statistics` explains the names."""

    interval: Literal["student", "released"] = "student"
    ranks: Literal["plain", "significant"] = "plain"


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

    @model_validator(mode="after")
    def _sizes_fit(self) -> "Pretraining":
        sizes = self.image_sizes
        if sizes and sum(sizes.values()) != self.epochs:
            raise ValueError(f"image_sizes holds {sum(sizes.values())} epochs, but epochs is {self.epochs}")
        return self

    def size_in_epoch(self, epoch: int, image_size: int) -> int:
        """Side in pixels of the training images in an epoch, counted from 0; without `image_sizes`, `image_size`."""
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
    schedule: Literal["constant", "cosine"] = "constant"  # "cosine": decays to 0
    head_learning_rate: PositiveFloat | None = None  # for numbers learned in the head; default: learning_rate
    query_loss: Literal["mean", "sum"] = "mean"  # over an episode's queries; episodes are always averaged
    support_gradients: PositiveInt | None = None  # support images to back-propagate through (LITE); default: all
    film_penalty: NonNegativeFloat = 0.0  # weight of Σs² over the FiLM regularisers, in every episode's loss
    validate_every: PositiveInt = 10_000  # episodes
    validation_datasets: tuple[str, ...]
    validation_episodes: PositiveInt = 200  # per dataset
    validation_protocol: Protocol | None = None  # default: `protocol`
    validate_refined: bool = False  # refine in validation, by the stopping rule
    keep_best_by: Literal["mean accuracy", "half of the datasets"] = "mean accuracy"


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

    @model_validator(mode="after")
    def _recorded(self) -> "Refinement":
        if self.maximum_steps > self.recorded_steps:
            counts = f"maximum_steps {self.maximum_steps} exceeds recorded_steps {self.recorded_steps}"
            raise ValueError(f"{counts}; raise recorded_steps")
        return self

    @property
    def limits(self) -> tuple[int, int]:
        """The stopping rule's minimum and maximum."""
        return self.minimum_steps, self.maximum_steps

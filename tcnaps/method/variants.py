"""Every system of the paper's ablation table (Table 3) as one row of settings, and beside them some of other heads.

Kept apart from `model` so that tables and figures can read it without importing torch.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from tcnaps.method.head import Head


@dataclass(frozen=True)
class Training:
    """One set of meta-learned weights. Six of them serve the paper's ten variants."""

    name: str
    task_embedding: Literal["support_only", "transductive"]  # a mean, or the LSTM of equations 6 and 7
    log_determinant: bool = False  # whether the head is a Gaussian mixture's: −½ d² − ½ log|Q|, else −d²
    refinement_in_training: bool = False  # whether the loss is taken after the refinement loop (the "+" variants)
    half_scale: bool = False  # −½ d² without the log-determinant: the control between −d² and the mixture
    learned: tuple[str, ...] = ()  # numbers of the head that are learned with the networks
    learned_steps: int = 0  # how many steps have numbers of their own; 0: all have the same

    @property
    def head(self) -> Head:
        """The training's head with the paper's settings; what is learned starts from it."""
        scale = 0.5 if self.log_determinant or self.half_scale else 1.0
        prior = {"class_prior": "estimated", "prior_weight": 0.0} if "prior_weight" in self.learned else {}
        return Head(log_determinant=self.log_determinant, scale=scale, **prior)


@dataclass(frozen=True)
class Variant:
    """A named system: one training, classified with or without refinement at test time."""

    name: str
    training: str
    refinement_at_test: bool
    scale_at_test: Literal["auto"] | None = None  # in place of the training's


Row = TypeVar("Row", Training, Variant)


def _by_name(*rows: Row) -> dict[str, Row]:
    return {row.name: row for row in rows}


TRAININGS = _by_name(
    Training("support", "support_only"),
    Training("support_and_query", "transductive"),
    Training("support_and_query_refined", "transductive", refinement_in_training=True),
    Training("support_log_determinant", "support_only", log_determinant=True),
    Training("support_and_query_log_determinant", "transductive", log_determinant=True),
    Training("support_and_query_log_determinant_refined", "transductive", True, True),
)

VARIANTS = _by_name(
    Variant("GMM-EM+", "support_and_query_log_determinant_refined", True),
    Variant("GMM", "support_log_determinant", False),
    Variant("FEOT GMM", "support_and_query_log_determinant", False),
    Variant("COT GMM", "support_log_determinant", True),
    Variant("GMM-EM", "support_and_query_log_determinant", True),
    Variant("Transductive+", "support_and_query_refined", True),
    Variant("Simple", "support", False),
    Variant("FEOT", "support_and_query", False),
    Variant("COT", "support", True),
    Variant("Transductive", "support_and_query", True),
)

# With other heads. They are not the paper's: its tables and figures leave them out.
FURTHER_TRAININGS = _by_name(
    Training("support_half_scale", "support_only", half_scale=True),
    Training("support_and_query_half_scale", "transductive", half_scale=True),
    Training("support_and_query_learned_scale", "transductive", learned=("scale",)),
    Training("support_and_query_learned_steps", "transductive", False, True, False, ("scale", "prior_weight"), 5),
)

FURTHER_VARIANTS = _by_name(
    Variant("Simple ½", "support_half_scale", False),
    Variant("FEOT ½", "support_and_query_half_scale", False),
    Variant("COT ½", "support_half_scale", True),
    Variant("Transductive ½", "support_and_query_half_scale", True),
    Variant("Calibrated Transductive", "support_and_query", True, "auto"),
    Variant("Learned Scale", "support_and_query_learned_scale", True),
    Variant("Learned Steps", "support_and_query_learned_steps", True),
)

ALL_TRAININGS, ALL_VARIANTS = TRAININGS | FURTHER_TRAININGS, VARIANTS | FURTHER_VARIANTS

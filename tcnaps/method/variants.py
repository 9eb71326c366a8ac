"""Every system of the paper's ablation table (Table 3) as one row of settings.

Kept apart from `model` so that tables and figures can read it without importing torch.
"""

from dataclasses import dataclass
from typing import Literal

from tcnaps.method.head import Head


@dataclass(frozen=True)
class Training:
    """One set of meta-learned weights. Six of them serve all ten variants.

    Attributes:
        task_embedding: `support_only` is the plain mean over the support images (Simple CNAPS);
            `transductive` is the two-step LSTM over the support and query means (equations 6 and 7).
        log_determinant: whether the head is a Gaussian mixture's: −½ d² − ½ log|Q|, else −d².
        refinement_in_training: whether the loss is taken after the refinement loop (the "+" variants).
    """

    name: str
    task_embedding: Literal["support_only", "transductive"]
    log_determinant: bool
    refinement_in_training: bool

    @property
    def head(self) -> Head:
        """The training's head with the paper's settings; its scale is 1, or ½ in the paper's mixture equation."""
        return Head(log_determinant=self.log_determinant, scale=0.5 if self.log_determinant else 1.0)


@dataclass(frozen=True)
class Variant:
    """A named system of the paper: one training, classified with or without refinement at test time."""

    name: str
    training: str
    refinement_at_test: bool


TRAININGS = {
    training.name: training
    for training in (
        Training("support", "support_only", False, False),
        Training("support_and_query", "transductive", False, False),
        Training("support_and_query_refined", "transductive", False, True),
        Training("support_log_determinant", "support_only", True, False),
        Training("support_and_query_log_determinant", "transductive", True, False),
        Training("support_and_query_log_determinant_refined", "transductive", True, True),
    )
}

VARIANTS = {
    variant.name: variant
    for variant in (
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
}

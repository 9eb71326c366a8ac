"""Every system of the paper's ablation table (Table 3) as one row of settings.

Kept apart from `model` so that tables and figures can read it without importing torch.
"""

from dataclasses import dataclass
from typing import Literal


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
    def scale(self) -> float:
        """Factor on the squared distance inside the softmax: 1, or ½ in the paper's mixture equation."""
        return 0.5 if self.log_determinant else 1.0


@dataclass(frozen=True)
class Variant:
    """A named system of the paper: one training, classified with or without refinement at test time."""

    name: str
    training: str
    refinement_at_test: bool


TRAININGS = {
    training.name: training
    for training in (
        Training("simple", "support_only", log_determinant=False, refinement_in_training=False),
        Training("feot", "transductive", log_determinant=False, refinement_in_training=False),
        Training("transductive_plus", "transductive", log_determinant=False, refinement_in_training=True),
        Training("gmm", "support_only", log_determinant=True, refinement_in_training=False),
        Training("feot_gmm", "transductive", log_determinant=True, refinement_in_training=False),
        Training("gmm_em_plus", "transductive", log_determinant=True, refinement_in_training=True),
    )
}

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("GMM-EM+", "gmm_em_plus", refinement_at_test=True),
        Variant("GMM", "gmm", refinement_at_test=False),
        Variant("FEOT GMM", "feot_gmm", refinement_at_test=False),
        Variant("COT GMM", "gmm", refinement_at_test=True),
        Variant("GMM-EM", "feot_gmm", refinement_at_test=True),
        Variant("Transductive+", "transductive_plus", refinement_at_test=True),
        Variant("Simple", "simple", refinement_at_test=False),
        Variant("FEOT", "feot", refinement_at_test=False),
        Variant("COT", "simple", refinement_at_test=True),
        Variant("Transductive", "feot", refinement_at_test=True),
    )
}

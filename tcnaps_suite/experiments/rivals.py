"""Other ways to classify an episode, on the same features as Transductive CNAPS.

A classifier takes support features (n_support, d), their labels, and query features (n_query, d), and returns the
queries' labels. All but CNAPS' own heads bring features to length 1, as their papers do. No setting is tuned here.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tcnaps.config.errors import UserError
from tcnaps.estimator import TransductiveMahalanobisClassifier
from tcnaps.method.class_statistics import class_means, one_hot
from tcnaps.method.clustering import cluster
from tcnaps.method.head import Head

Support = Float[Tensor, "n_support d"]
Labels = Int[Tensor, "n_support"]
Query = Float[Tensor, "n_query d"]
QueryLabels = Int[Tensor, "n_query"]
Classifier = Callable[[Support, Labels, Query], QueryLabels]

TEMPERATURE = 15.0  # τ of α-TIM's published settings, for features of length 1
# Settings that EasyFSL publishes with its methods (scripts/methods_configs.json). Its classes have no hyphens.
EASYFSL = {
    "BD-CSPN": {},
    "LaplacianShot": {"inference_steps": 10, "knn": 3, "lambda_regularization": 0.1},
    "PT-MAP": {"fine_tuning_steps": 30, "fine_tuning_lr": 0.3, "lambda_regularization": 10, "power_factor": 0.5},
    "TIM": {"fine_tuning_steps": 50, "fine_tuning_lr": 1e-3, "temperature": 10.0}
    | {"cross_entropy_weight": 1.0, "marginal_entropy_weight": 1.0, "conditional_entropy_weight": 0.5},
}


def head_classifier(head: Head, minimum: int = 2, maximum: int = 4) -> Classifier:
    """A head of CNAPS as a classifier. With `maximum` 0 there is no refinement, as in Simple CNAPS."""
    return lambda support, labels, query: cluster(support, labels, query, None, head, minimum, maximum).labels


def of_estimator(**parameters: object) -> Classifier:
    """`TransductiveMahalanobisClassifier`, which chooses its settings from the features themselves."""
    return lambda *sets: _transduced(TransductiveMahalanobisClassifier(**parameters), *sets)


def cnaps(head: Head, minimum: int = 2, maximum: int = 4) -> dict[str, Classifier]:
    """CNAPS' own classifiers, with the head that the features were meta-trained for, and the estimators."""
    return {
        "Simple CNAPS": head_classifier(head, 0, 0),
        "Transductive CNAPS": head_classifier(head, minimum, maximum),
        "Calibrated Transductive": head_classifier(replace(head, scale="auto"), minimum, maximum),
        "Transductive with prior": head_classifier(replace(head, class_prior="estimated"), minimum, maximum),
        "Estimator": of_estimator(),
        "Estimator, equal classes": of_estimator(class_prior="balancing"),
    }


def prototypes(support: Support, labels: Labels, query: Query) -> QueryLabels:
    """The nearest class mean (Snell et al. 2017)."""
    support, query = normalize(support), normalize(query)
    return torch.cdist(query, _means(support, labels)).argmin(1)


def logistic_regression(support: Support, labels: Labels, query: Query) -> QueryLabels:
    """scikit-learn's, with its default penalty (Tian et al. 2020)."""
    model = LogisticRegression(max_iter=1000).fit(normalize(support).cpu().numpy(), labels.cpu().numpy())
    return torch.from_numpy(model.predict(normalize(query).cpu().numpy())).to(labels)


def label_spreading(support: Support, labels: Labels, query: Query) -> QueryLabels:
    """scikit-learn's, with its default kernel and settings (Zhou et al. 2004)."""
    return _transduced(LabelSpreading(max_iter=1000), normalize(support).double(), labels, normalize(query).double())


def self_training(support: Support, labels: Labels, query: Query) -> QueryLabels:
    """scikit-learn's, over logistic regression: it labels queries above a probability of 0.75, and learns from them.

    With features of length 1, hardly any query of an episode gets there, and logistic regression remains.
    """
    model = SelfTrainingClassifier(LogisticRegression(max_iter=1000))
    return _transduced(model, normalize(support), labels, normalize(query))


def gaussian_discriminant(support: Support, labels: Labels, query: Query) -> QueryLabels:
    """Gaussians with one covariance, shrunk by its trace: Q = (n − 1) Σ + tr(Σ) I (Wang et al. 2024, 2402.04087).

    At one shot Σ, the variance within classes, is 0. The nearest class mean remains.
    """
    support, query = normalize(support).double(), normalize(query).double()
    means = _means(support, labels)  # (way, d)
    deviations = support - means[labels]
    covariance = deviations.T @ deviations / len(support)  # (d, d)
    identity = torch.eye(len(covariance)).to(covariance)
    q = (len(support) - 1) * covariance + covariance.trace() * identity
    weights = torch.linalg.solve(q if covariance.trace() > 0 else identity, means.T)  # (d, way)
    return (query @ weights - (means.T * weights).sum(0) / 2).argmax(1)


def paddle(support: Support, labels: Labels, query: Query, steps: int = 100) -> QueryLabels:
    """Soft k-means with estimated class proportions, which may vanish (Martin et al. 2022, PADDLE).

    Responsibilities are softmax(−τ/2 · |z − w_k|² + log π_k), where π_k is the mean responsibility of class k over the
    query images. The description length's weight λ is the number of query images, as the paper derives.
    """
    support, query = normalize(support).double(), normalize(query).double()
    fixed = one_hot(labels, int(labels.max()) + 1, support)
    means, log_proportions = _means(support, labels), 0.0
    for _ in range(steps):
        responsibilities = (_similarities(query, means) + log_proportions).softmax(1)
        log_proportions = responsibilities.mean(0).clamp_min(1e-12).log()
        means = class_means(torch.cat([support, query]), torch.cat([fixed, responsibilities]))
    return responsibilities.argmax(1)


def alpha_tim(support: Support, labels: Labels, query: Query) -> QueryLabels:
    """Class means that maximise an α-mutual information between query images and labels (Veilleux et al. 2021).

    The loss is the support set's cross-entropy − H_α(mean prediction) + mean H_α(prediction), with Tsallis' entropies
    H_α(p) = (1 − Σ p_k^α) / (α − 1). They push less than Shannon's towards equally frequent classes.
    """
    alpha, steps, learning_rate = 5.0, 1000, 1e-4
    support, query = normalize(support).float(), normalize(query).float()
    means = _means(support, labels).requires_grad_()
    optimizer = torch.optim.Adam([means], learning_rate)

    def entropy(p: Float[Tensor, "... way"]) -> Float[Tensor, "..."]:
        return (1 - p.pow(alpha).sum(-1)) / (alpha - 1)

    with torch.enable_grad():
        for _ in range(steps):
            predicted = _similarities(query, means).softmax(1)
            loss = cross_entropy(_similarities(support, means), labels)
            loss = loss - entropy(predicted.mean(0)) + entropy(predicted).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return _similarities(query, means).argmax(1).detach()


def of_easyfsl(name: str) -> Classifier:
    """A method of the package `easyfsl`, by its key in `EASYFSL`."""
    try:
        from easyfsl import methods
    except ImportError as error:
        raise UserError(f"{name} needs the package easyfsl: pip install tcnaps[rivals]") from error

    # With many features, PT-MAP's exp(−λ d²) would be 0 in float32, for every class.
    precision = torch.float64 if name == "PT-MAP" else torch.float32

    def classify(support: Support, labels: Labels, query: Query) -> QueryLabels:
        method = getattr(methods, name.replace("-", ""))(feature_normalization=2, **EASYFSL[name])
        method.process_support_set(support.to(precision), labels)
        return method(query.to(precision)).argmax(1)

    return classify


def rivals() -> dict[str, Classifier]:
    """Every classifier but CNAPS' own, by name; the inductive ones first.

    Transductive ones subtract the features' mean in the episode, inductive ones that in the support set. Without this,
    features behind a ReLU are nearly parallel. Those of EasyFSL, which does not do so, come in both ways; its PT-MAP
    sets negative entries to 0, and so loses those below a mean that is subtracted.
    """
    inductive = {
        "Prototypes": prototypes,
        "Logistic regression": logistic_regression,
        "Gaussian discriminant": gaussian_discriminant,
    }
    transductive = {"Label spreading": label_spreading, "Self-training": self_training, "PADDLE": paddle}
    transductive |= {"α-TIM": alpha_tim} | {name: of_easyfsl(name) for name in EASYFSL}
    centred = {name: _centred(classify, with_query=False) for name, classify in inductive.items()}
    centred |= {name: _centred(classify, with_query=True) for name, classify in transductive.items()}
    return centred | {f"{name}, not centred": of_easyfsl(name) for name in EASYFSL}


def _centred(classify: Classifier, with_query: bool) -> Classifier:
    def centred(support: Support, labels: Labels, query: Query) -> QueryLabels:
        mean = (torch.cat([support, query]) if with_query else support).mean(0)
        return classify(support - mean, labels, query - mean)

    return centred


def _transduced(model: BaseEstimator, support: Support, labels: Labels, query: Query) -> QueryLabels:
    """The queries' labels by a model of scikit-learn's kind, for which −1 is an unknown label."""
    known = torch.cat([labels, labels.new_full((len(query),), -1)]).cpu().numpy()
    model.fit(torch.cat([support, query]).cpu().numpy(), known)
    found = model.transduction_[len(labels) :]
    if (found == -1).any():  # self-training leaves out what it is not sure of
        found = model.predict(query.cpu().numpy())
    return torch.from_numpy(found).to(labels)


def _means(features: Support, labels: Labels) -> Float[Tensor, "way d"]:
    return class_means(features, one_hot(labels, int(labels.max()) + 1, features))


def _similarities(features: Float[Tensor, "n d"], means: Float[Tensor, "way d"]) -> Float[Tensor, "n way"]:
    """−τ/2 · squared distance."""
    return -TEMPERATURE / 2 * (features[:, None] - means).square().sum(2)

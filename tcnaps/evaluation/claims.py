"""The paper's claims as paired contrasts, each with the paper's number, ours, its interval, and a verdict."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tcnaps.evaluation.csv_tables import read_published, read_published_averages
from tcnaps.evaluation.intervals import clustered, estimates
from tcnaps.evaluation.recall import class_recall
from tcnaps.evaluation.statistics import (
    DOMAINS,
    episode_accuracies,
    paired_episodes,
    paired_query_counts,
    rule_accuracies,
)
from tcnaps.evaluation.stopped_rows import recorded_predictions, variant_predictions
from tcnaps.method.variants import VARIANTS

CLAIMS = {
    "C1": "Transductive beats Simple, most at 1 shot",
    "C2": "The gain in class recall shrinks as shot grows, and turns negative past 10",
    "C3": "COT and FEOT each beat Simple; COT helps in-domain, FEOT out-of-domain; together they are best",
    "C4": "Training through refinement (+) loses accuracy",
    "C5": "The log-determinant (GMM) loses accuracy",
    "C6": "Any refinement beats none; a minimum of 2 with a larger maximum is best; too many steps over-fit",
    "C7": "Accuracy grows with the number of queries per class",
    "C8": "A backbone trained on more classes (FETI) lifts everything, and the transductive gain stays",
}
VARIABLE = "variable"
NONE, FREE, RULE, LONGEST = "No Refinements", "No Min/Max", "Min 2 Max 4", "all recorded steps"  # as in Table 4
SHOT_BINS = {"shot 1": (1, 1), "shots 6 to 10": (6, 10), "shots past 10": (11, np.inf)}


@dataclass(frozen=True)
class Contrast:
    """One difference that a claim is about."""

    claim: str
    plus: str  # a variant, a stopping rule of Table 4, or "most queries"; for recall a bin of `SHOT_BINS`
    minus: str  # what it is compared with; for recall a second bin, or "" for none
    setting: str = VARIABLE  # or the shot of a fixed protocol; "1-shot minus 5-shot" is a difference of differences
    domain: str = "all"
    sign: int = 1  # that the claim expects

    @property
    def name(self) -> str:
        """The contrast in words, such as "COT minus Simple"."""
        if self.claim == "C2":
            return f"gain in recall at {self.plus}" + (f" minus at {self.minus}" if self.minus else "")
        return f"{self.plus} minus {self.minus}"


CONTRASTS = [
    *(Contrast("C1", "Transductive", "Simple", setting) for setting in ("1-shot", VARIABLE, "1-shot minus 5-shot")),
    Contrast("C2", "shot 1", ""),
    Contrast("C2", "shot 1", "shots 6 to 10"),
    Contrast("C2", "shots past 10", "", sign=-1),
    *(Contrast("C3", name, "Simple", domain=d) for name, d in (("COT", "in"), ("COT", "all"), ("FEOT", "out"))),
    Contrast("C3", "FEOT", "Simple"),
    *(Contrast("C3", "Transductive", name) for name in ("COT", "FEOT")),
    *(Contrast("C4", f"{name}+", name, sign=-1) for name in ("Transductive", "GMM-EM")),
    *(Contrast("C5", f"{name} GMM", name, sign=-1) for name in ("FEOT", "COT")),
    *(Contrast("C5", a, b, sign=-1) for a, b in (("GMM", "Simple"), ("GMM-EM", "Transductive"))),
    *(Contrast("C6", a, b) for a, b in ((FREE, NONE), (RULE, NONE), (RULE, FREE), (RULE, LONGEST))),
    *(Contrast("C7", "most queries", "fewest", setting) for setting in ("1-shot", "5-shot")),
]


def claims_table(rows: pd.DataFrame, limits: tuple[int, int] = (2, 4)) -> pd.DataFrame:
    """Every contrast of every claim, from one row per query.

    Args:
        rows: of all evaluations and replicates of a study, without those of untrained networks.
        limits: the study's stopping rule; it stands for the paper's minimum of 2 and maximum of 4.

    Returns:
        One row per contrast: `claim`, `contrast`, `setting`, `domain`, `paper` (its difference, where it prints one),
        `sign`, `difference`, `interval`, `n_episodes`, `n_replicates`, `replicates` (each one's difference, in points)
        and `verdict`: "holds" if the interval excludes 0 and every replicate has the expected sign, "fails" if every
        one has the other sign, else "open"; or "not evaluated".
    """
    evidence, table = Evidence(rows, limits), []
    for contrast in CONTRASTS:
        facts = {"claim": contrast.claim, "contrast": contrast.name, "setting": contrast.setting}
        facts |= {"domain": contrast.domain, "sign": contrast.sign, "paper": published_difference(contrast)}
        table.append(facts | _decided(evidence.pairs(contrast), contrast.sign))
    facts = {"claim": "C8", "contrast": "another backbone", "setting": VARIABLE, "domain": "all", "sign": 1}
    table.append(facts | _decided(None, 1))  # it takes a second study, whose backbone was trained on more classes
    columns = ["claim", "contrast", "setting", "domain", "paper", "sign", "difference", "interval"]
    columns += ["n_episodes", "n_replicates", "replicates", "verdict"]
    return pd.DataFrame(table, columns=columns).astype({"n_episodes": "Int64", "n_replicates": "Int64"})


def claim_verdicts(table: pd.DataFrame) -> pd.Series:
    """One verdict per claim: it fails if any of its contrasts fails, and holds if all that were evaluated hold."""

    def combined(verdicts: pd.Series) -> str:
        present = set(verdicts) - {"not evaluated"}
        return next((word for word in ("fails", "open", "holds") if word in present), "not evaluated")

    return table.groupby("claim", sort=False)["verdict"].agg(combined)


def claims_markdown(table: pd.DataFrame) -> str:
    """The table of `claims_table` for a README: differences in points, one row per contrast under its claim."""
    lines = ["| claim | paper | here | each training | verdict |", "|---|---|---|---|---|"]
    verdicts = claim_verdicts(table)
    for claim, contrasts in table.groupby("claim", sort=False):
        lines.append(f"| **{claim}: {CLAIMS[claim]}** | | | | **{verdicts[claim]}** |")
        for row in contrasts.itertuples():
            setting = row.setting + {"in": ", in-domain", "out": ", out-of-domain"}.get(row.domain, "")
            ours = in_points(row.difference, row.interval)
            lines.append(
                f"| {row.contrast}, {setting} | {_points(row.paper)} | {ours} | {row.replicates} | {row.verdict} |"
            )
    return "\n".join(lines).replace(" -", " −") + "\n"


def in_points(difference: float, interval: float) -> str:
    """A difference with its interval in points, with as many digits as the interval needs; nan gives an empty text.

    Example:
        >>> in_points(0.0614, 0.0021), in_points(-0.0002, 0.0001)
        ('+6.1 ± 0.2', '−0.02 ± 0.01')
    """
    if pd.isna(difference):
        return ""
    digits = _digits(interval)
    return f"{_points(difference, digits)} ± {100 * interval:.{digits}f}".replace("-", "−")


def _decided(pairs: pd.DataFrame | None, sign: int) -> dict:
    """The columns of a contrast that follow from its paired differences; None where it was not evaluated."""
    if pairs is None:
        return {"replicates": "", "verdict": "not evaluated"}
    mean = estimates(pairs.assign(all=0), ["all"], "difference").iloc[0]
    replicates = pairs.groupby(["replicate", "dataset"])["difference"].mean().groupby("replicate").mean()
    excludes_zero = abs(mean["difference"]) > mean["interval"]
    decided = excludes_zero and (np.sign(replicates) == np.sign(mean["difference"])).all()
    expected = mean["difference"] * sign > 0
    facts = mean[["difference", "interval", "n_episodes", "n_replicates"]].to_dict()
    points = " ".join(_points(value, _digits(mean["interval"])) for value in replicates)
    return facts | {"replicates": points, "verdict": ("holds" if expected else "fails") if decided else "open"}


def _points(value: float, digits: int = 1) -> str:
    return "" if pd.isna(value) else f"{round(100 * value, digits) + 0.0:+.{digits}f}"


def _digits(interval: float) -> int:
    """Decimals of an interval in points, so that it does not read 0.0."""
    return next((digits for digits in (1, 2, 3) if round(100 * interval, digits) > 0), 1)


def published_difference(contrast: Contrast) -> float:
    """What the paper's tables print of a contrast; nan where they print nothing."""
    if contrast.setting == VARIABLE:
        tables = pd.concat([read_published_averages(table) for table in (4, 3)])  # Table 4's first row is FEOT, too
        averages = tables.set_index(["model", "domain"])["accuracy"]
        plus, minus = (averages.get((model, contrast.domain), np.nan) for model in (contrast.plus, contrast.minus))
        return plus - minus
    if contrast.plus != "Transductive":
        return np.nan
    fixed = read_published(2).query("way == 5").groupby(["model", "shot"])["accuracy"].mean()
    gains = fixed["Transductive CNAPS"] - fixed["Simple CNAPS"]  # by shot; mean of mini- and tiered-ImageNet
    return gains[1] - (gains[5] if " minus " in contrast.setting else 0)


class Evidence:
    """The rows of a study as paired differences, one frame per contrast."""

    def __init__(self, rows: pd.DataFrame, limits: tuple[int, int]):
        self.rows, self.limits = rows, limits
        self._accuracies: dict[tuple[str, str], pd.DataFrame] = {}  # by evaluation and variant
        groups = rows.groupby("evaluation", sort=False, observed=True)
        fixed = (groups[["way", "shot"]].nunique() == 1).all(axis=1)
        first = groups[["way", "shot", "queries_per_class"]].first()
        self.evaluations = first.assign(fixed=fixed, trainings=groups["training"].unique().map(set))

    def pairs(self, contrast: Contrast) -> pd.DataFrame | None:
        """One `difference` per replicate, dataset and episode; None where the study cannot tell."""
        by_claim = {"C2": self._recall, "C6": self._stopping_rules, "C7": self._query_counts}
        pairs = by_claim.get(contrast.claim, self._accuracy)(contrast)
        if pairs is not None and contrast.domain != "all":
            pairs = pairs[pairs["domain"].isin(DOMAINS[contrast.domain])]
        return None if pairs is None or pairs.empty else pairs

    def _names(self, setting: str, *variants: str) -> list[str]:
        """The evaluations of a setting that hold these variants; fixed ones by way, then by queries per class."""
        needed = {VARIANTS[name].training for name in variants}
        usable = self.evaluations[[needed <= trainings for trainings in self.evaluations["trainings"]]]
        if setting == VARIABLE:
            return list(usable.index[~usable["fixed"]])
        usable = usable[usable["fixed"] & (usable["shot"] == int(setting.removesuffix("-shot")))]
        return list(usable.sort_values(["way", "queries_per_class"]).index)

    def _predictions(self, evaluation: str, variant: str) -> pd.DataFrame:
        return variant_predictions(self.rows[self.rows["evaluation"] == evaluation], variant, *self.limits)

    def _episodes(self, evaluation: str, variant: str) -> pd.DataFrame:
        """Accuracies per episode; several contrasts share them."""
        key = evaluation, variant
        if key not in self._accuracies:
            self._accuracies[key] = episode_accuracies(self._predictions(evaluation, variant))
        return self._accuracies[key]

    def _accuracy(self, contrast: Contrast) -> pd.DataFrame | None:
        sides, settings = (contrast.plus, contrast.minus), contrast.setting.split(" minus ")
        # A difference of two settings is the mean of twice the one and minus twice the other.
        factors, parts = (1,) if len(settings) == 1 else (2, -2), []
        for setting, factor in zip(settings, factors, strict=True):
            names = self._names(setting, *sides)
            if not names:
                return None
            pairs = paired_episodes(*(self._episodes(names[0], side) for side in sides))
            parts.append(pairs.assign(difference=factor * pairs["difference"]))
        shared = set.intersection(*(set(part["dataset"]) for part in parts))
        both = pd.concat([part[part["dataset"].isin(shared)] for part in parts])
        return both.assign(dataset=both["dataset"] + both["evaluation"])

    def _recall(self, contrast: Contrast) -> pd.DataFrame | None:
        names = self._names(VARIABLE, "Transductive", "Simple")
        if not names:
            return None
        sides = (class_recall(self._predictions(names[0], name)) for name in ("Transductive", "Simple"))
        classes = paired_episodes(*sides, "recall", ["label"])
        parts = [classes[classes["shot"].between(*SHOT_BINS[name])] for name in (contrast.plus, contrast.minus) if name]
        if any(part.empty for part in parts):
            return None
        n, signs = sum(map(len, parts)), (1, -1)
        means = [part["difference"].mean() for part in parts]
        total = sum(sign * mean for sign, mean in zip(signs, means))
        # Values whose pooled mean is the difference of the bins' means, with the same influence of every class.
        values = []
        for part, mean, sign in zip(parts, means, signs):
            deviations = sign * n / len(part) * (part["difference"] - mean)
            values.append(part.assign(all=0, difference=total + deviations))
        return clustered(pd.concat(values), ["all"], "difference")

    def _stopping_rules(self, contrast: Contrast) -> pd.DataFrame | None:
        names = self._names(VARIABLE, "Transductive")
        if not names:
            return None
        rows = self.rows[self.rows["evaluation"] == names[0]]
        recorded = recorded_predictions(rows.iloc[:1]).shape[1] - 1
        rules = {NONE: (0, 0), FREE: (0, recorded), RULE: self.limits, LONGEST: (recorded, recorded)}
        sides = {name: rules[name] for name in (contrast.plus, contrast.minus)}
        accuracies = rule_accuracies(rows, VARIANTS["Transductive"].training, sides)
        return paired_episodes(*(accuracies[accuracies["variant"] == name] for name in sides))

    def _query_counts(self, contrast: Contrast) -> pd.DataFrame | None:
        usable = self.evaluations.loc[self._names(contrast.setting, "Transductive")]
        usable = usable[usable["way"] == usable["way"].min()]  # the fewest queries come first
        if usable["queries_per_class"].nunique() < 2:
            return None
        return paired_query_counts(*(self._episodes(name, "Transductive") for name in usable.index[[-1, 0]]))

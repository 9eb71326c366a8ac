"""The paper's claims, decided: each as paired contrasts with the paper's figure, ours, its interval, and a verdict."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tcnaps.evaluation.csv_tables import read_published, read_published_averages
from tcnaps.evaluation.intervals import clustered, crossed, estimates
from tcnaps.evaluation.recall import class_recall
from tcnaps.evaluation.statistics import DOMAINS, episode_accuracies, paired_episodes, rule_accuracies
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
    """One difference that a claim speaks of.

    Attributes:
        plus: a variant, a stopping rule of Table 4, or "most queries"; for recall a bin of `SHOT_BINS`.
        minus: what it is compared with. For recall a second bin, or "" for none.
        setting: `VARIABLE` or the shots of a fixed protocol; "1-shot minus 5-shot" is the change of the difference.
        sign: of the difference that the claim expects.
    """

    claim: str
    plus: str
    minus: str
    setting: str = VARIABLE
    domain: str = "all"
    sign: int = 1

    @property
    def name(self) -> str:
        """In words, as "COT minus Simple"."""
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
        rows: of all evaluations and replicates of a study, but those of networks before training.
        limits: the stopping rule, which stands where the paper has a minimum of 2 and a maximum of 4.

    Returns:
        One row per contrast: `claim`, `contrast`, `setting`, `domain`, `paper` (its difference, where it prints one),
        `sign`, `difference`, `interval`, `n_episodes`, `n_replicates`, `replicates` (each one's difference, in points),
        `verdict` ("holds" if the interval excludes 0 and every replicate has the expected sign, "fails" if they all
        are on the other side, else "open", or "not evaluated") and `decides`, what would settle an open one.
    """
    published, evidence = _published(), Evidence(rows, limits)
    found = []
    for contrast in CONTRASTS:
        facts = {"claim": contrast.claim, "contrast": contrast.name, "setting": contrast.setting}
        facts |= {"domain": contrast.domain, "sign": contrast.sign, "paper": published(contrast)}
        found.append(facts | _decided(evidence.pairs(contrast), contrast.sign))
    nothing = {"claim": "C8", "contrast": "another backbone", "setting": VARIABLE, "domain": "all", "sign": 1}
    found.append(nothing | _decided(None, 1) | {"decides": "a second study whose backbone was trained on more classes"})
    columns = ["claim", "contrast", "setting", "domain", "paper", "sign", "difference", "interval"]
    columns += ["n_episodes", "n_replicates", "replicates", "verdict", "decides"]
    return pd.DataFrame(found, columns=columns).astype({"n_episodes": "Int64", "n_replicates": "Int64"})


def claim_verdicts(table: pd.DataFrame) -> pd.Series:
    """One verdict per claim: it holds if all that was evaluated does, and fails if any contrast fails."""

    def of(verdicts: pd.Series) -> str:
        seen = set(verdicts) - {"not evaluated"}
        return next((word for word in ("fails", "open", "holds") if word in seen), "not evaluated")

    return table.groupby("claim", sort=False)["verdict"].agg(of)


def claims_markdown(table: pd.DataFrame) -> str:
    """The table of `claims_table` for a README: differences in points, one row per contrast under its claim."""
    lines = ["| claim | paper | here | each training | verdict |", "|---|---|---|---|---|"]
    verdicts = claim_verdicts(table)
    for claim, own in table.groupby("claim", sort=False):
        lines.append(f"| **{claim}: {CLAIMS[claim]}** | | | | **{verdicts[claim]}** |")
        for row in own.itertuples():
            where = row.setting + {"in": ", in-domain", "out": ", out-of-domain"}.get(row.domain, "")
            verdict = row.verdict + (f" ({row.decides})" if row.decides else "")
            ours = in_points(row.difference, row.interval)
            lines.append(f"| {row.contrast}, {where} | {_points(row.paper)} | {ours} | {row.replicates} | {verdict} |")
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
    if pairs is None:
        return {"replicates": "", "verdict": "not evaluated", "decides": "an evaluation that has both sides"}
    total = estimates(pairs.assign(all=0), ["all"], "difference").iloc[0]
    each = pairs.groupby(["replicate", "dataset"])["difference"].mean().groupby("replicate").mean()
    beyond = abs(total["difference"]) > total["interval"]
    if beyond and (np.sign(each) == np.sign(total["difference"])).all():
        verdict = "holds" if total["difference"] * sign > 0 else "fails"
        decides = "" if len(each) > 1 else "of one training: others may differ"
    else:
        verdict, decides = "open", _what_decides(total)
    facts = total[["difference", "interval", "n_episodes", "n_replicates"]].to_dict()
    replicates = " ".join(_points(value, _digits(total["interval"])) for value in each)
    return facts | {"replicates": replicates, "verdict": verdict, "decides": decides}


def _what_decides(total: pd.Series) -> str:
    """How many replicates or episodes would take the interval off 0, if the difference stayed as it is."""
    size, n = abs(total["difference"]), int(total["n_replicates"])
    if n > 1:
        for more in range(n + 1, 31):
            fewer = {**total, "of_trainings": total["of_trainings"] * n / more, "n_replicates": more}
            if crossed(fewer) < size:
                return f"about {more} replicates"
    times = np.ceil((total["width"] / size) ** 2) if size else np.inf
    if times <= 1:
        return "more replicates"
    if times > 50:
        return "no number of episodes that is practical"
    return f"about {times:.0f} times the episodes" + (" and more replicates" if n > 1 else "")


def _points(value: float, digits: int = 1) -> str:
    return "" if pd.isna(value) else f"{round(100 * value, digits) + 0.0:+.{digits}f}"


def _digits(interval: float) -> int:
    """Of points, so that an interval does not read 0.0."""
    return next((digits for digits in (1, 2, 3) if round(100 * interval, digits) > 0), 1)


def _published() -> Callable[[Contrast], float]:
    """What the paper's tables say of a contrast; nan where they print neither side."""
    averages = pd.concat([read_published_averages(table) for table in (4, 3)])  # FEOT is Table 4's first row, too
    averages = averages.set_index(["model", "domain"])["accuracy"]
    fixed = read_published(2).query("way == 5").groupby(["model", "shot"])["accuracy"].mean()

    def of(contrast: Contrast) -> float:
        if contrast.setting == VARIABLE:
            return averages.get((contrast.plus, contrast.domain), np.nan) - averages.get(
                (contrast.minus, contrast.domain), np.nan
            )
        if contrast.plus != "Transductive":
            return np.nan
        gains = fixed["Transductive CNAPS"] - fixed["Simple CNAPS"]  # mean of mini- and tiered-ImageNet
        return gains[1] - (gains[5] if " minus " in contrast.setting else 0)

    return of


class Evidence:
    """The rows of a study, as the paired differences that a contrast asks for."""

    def __init__(self, rows: pd.DataFrame, limits: tuple[int, int]):
        self.rows, self.limits = rows, limits
        grouped = rows.groupby("evaluation", sort=False, observed=True)
        facts = grouped[["way", "shot", "queries_per_class"]].first()
        fixed = (grouped[["way", "shot"]].nunique() == 1).all(axis=1)
        self.facts = facts.assign(fixed=fixed, trainings=grouped["training"].unique().map(set))

    def pairs(self, contrast: Contrast) -> pd.DataFrame | None:
        """One `difference` per replicate, dataset and episode; None where the study has none."""
        kinds = {"C2": self._recall, "C6": self._rules, "C7": self._queries}
        found = kinds.get(contrast.claim, self._accuracy)(contrast)
        if found is not None and contrast.domain != "all":
            found = found[found["domain"].isin(DOMAINS[contrast.domain])]
        return None if found is None or found.empty else found

    def _evaluations(self, setting: str, *variants: str) -> list[str]:
        """Those of a setting that hold the variants; of the fixed ones, few ways and few queries first."""
        needed = {VARIANTS[name].training for name in variants}
        own = self.facts[[needed <= held for held in self.facts["trainings"]]]
        if setting == VARIABLE:
            return list(own.index[~own["fixed"]])
        own = own[own["fixed"] & (own["shot"] == int(setting.removesuffix("-shot")))]
        return list(own.sort_values(["way", "queries_per_class"]).index)

    def _predictions(self, evaluation: str, variant: str) -> pd.DataFrame:
        own = self.rows["evaluation"].eq(evaluation) & self.rows["training"].eq(VARIANTS[variant].training)
        return variant_predictions(self.rows[own], variant, *self.limits)

    def _accuracy(self, contrast: Contrast) -> pd.DataFrame | None:
        sides, parts = (contrast.plus, contrast.minus), []
        # Twice the one in one half, and minus twice the other in the other: their mean is the difference of means.
        settings = contrast.setting.split(" minus ")
        for setting, factor in zip(settings, (2, -2) if len(settings) > 1 else (1,), strict=True):
            names = self._evaluations(setting, *sides)
            if not names:
                return None
            own = paired_episodes(*(episode_accuracies(self._predictions(names[0], side)) for side in sides))
            parts.append(own.assign(difference=factor * own["difference"]))
        shared = set.intersection(*(set(part["dataset"]) for part in parts))
        parts = [part[part["dataset"].isin(shared)] for part in parts]
        return pd.concat([part.assign(dataset=part["dataset"] + part["evaluation"]) for part in parts])

    def _recall(self, contrast: Contrast) -> pd.DataFrame | None:
        names = self._evaluations(VARIABLE, "Transductive", "Simple")
        if not names:
            return None
        sides = (class_recall(self._predictions(names[0], name)) for name in ("Transductive", "Simple"))
        classes = paired_episodes(*sides, "recall", ["label"])
        bins = [SHOT_BINS[side] for side in (contrast.plus, contrast.minus) if side]
        parts = [classes[classes["shot"].between(*limits)] for limits in bins]
        if not all(map(len, parts)):
            return None
        means, n = [part["difference"].mean() for part in parts], sum(map(len, parts))
        total = means[0] - sum(means[1:])
        # Values whose pooled mean is the difference of the bins' means, with the same influence of every class.
        weights = [sign * n / len(part) for part, sign in zip(parts, (1, -1))]
        values = [
            part.assign(all=0, difference=total + weight * (part["difference"] - mean))
            for part, mean, weight in zip(parts, means, weights)
        ]
        return clustered(pd.concat(values), ["all"], "difference")

    def _rules(self, contrast: Contrast) -> pd.DataFrame | None:
        names = self._evaluations(VARIABLE, "Transductive")
        if not names:
            return None
        own = self.rows[self.rows["evaluation"] == names[0]]
        recorded = recorded_predictions(own.iloc[:1]).shape[1] - 1
        rules = {NONE: (0, 0), FREE: (0, recorded), RULE: self.limits, LONGEST: (recorded, recorded)}
        sides = {name: rules[name] for name in (contrast.plus, contrast.minus)}
        accuracies = rule_accuracies(own, VARIANTS["Transductive"].training, sides)
        return paired_episodes(*(accuracies[accuracies["variant"] == name] for name in sides))

    def _queries(self, contrast: Contrast) -> pd.DataFrame | None:
        own = self.facts.loc[self._evaluations(contrast.setting, "Transductive")]
        own = own[own["way"] == own["way"].min()]  # those of one way, fewest queries first
        if own["queries_per_class"].nunique() < 2:
            return None
        sides = [episode_accuracies(self._predictions(name, "Transductive")) for name in own.index[[-1, 0]]]
        sides = [side.assign(evaluation="", queries_per_class=0).drop(columns="queries") for side in sides]
        keys = ["dataset", "episode", "replicate"]  # of the datasets and episodes that both have
        return paired_episodes(*(a.merge(b[keys], on=keys) for a, b in (sides, sides[::-1])))

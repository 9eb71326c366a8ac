"""The paper's claims as paired contrasts, each with the paper's number, ours, its interval, and a verdict.

Real and rendered images are never averaged: a study that has both decides each contrast twice. The interval of a
contrast is for other test classes, other episodes and, with several replicates, other trainings. docs/glossary.md
(Verdicts) says when a contrast holds, shows no effect, is opposite to the claim, or stays open.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from tcnaps.config import Study, load_study
from tcnaps.evaluation import statistics
from tcnaps.evaluation.intervals import clustered, needed, of_classes, other_classes, p_value
from tcnaps.evaluation.result_files import load_rows, published, read_published, read_published_averages
from tcnaps.evaluation.stopped_rows import EPISODE, recorded_predictions, rule_accuracies, variant_predictions
from tcnaps.method.variants import ALL_VARIANTS, VARIANTS

CLAIMS = {
    "C1": "Transductive beats Simple, most at 1 shot",
    "C2": "The gain in class recall shrinks as shot grows, and turns negative past 10",
    "C3": "COT and FEOT each beat Simple; COT helps in-domain, FEOT out-of-domain; together they are best",
    "C4": "Training through refinement (+) loses accuracy",
    "C5": "The mixture's head, −½ d² − ½ log|Q|, loses accuracy against −d²",
    "C5, the ½": "The ½ alone loses accuracy",
    "C5, log|Q|": "The log-determinant alone loses accuracy",
    "C6": "Any refinement beats none",
    "C6, maximum": "A maximum above the minimum beats stopping there",
    "C6, minimum": "A minimum of 2 beats no minimum",
    "C6, limits": "A minimum and a maximum together beat no limits",
    "C6, over-fitting": "Too many steps lose accuracy",
    "C7": "Accuracy grows with the number of queries per class",
    "C8": "A backbone trained on more classes (FETI) lifts everything, and the transductive gain stays",
}
VERDICTS = {"holds": "hold", "no effect": "show no effect", "opposite": "opposite", "open": "open"}  # and of several
COLUMNS = ["images", "claim", "contrast", "setting", "domain", "sign", "paper", "shuffled", "difference", "interval"]
COLUMNS += ["episode_interval", "p", "excluded", "improved", "worst", "classes_at_hand"]
COLUMNS += ["n_datasets", "n_classes", "n_episodes", "n_replicates", "replicates"]
COLUMNS += ["plan_trainings", "plan_classes", "plan_episodes", "verdict"]  # docs/glossary.md explains them all
VARIABLE = "variable"
NONE, FREE, RULE = "No Refinements", "No Min/Max", "Min 2 Max 4"  # as in Table 4
SHORT, LATE, LONGEST = "Min 2 Max 2", "No Min Max 4", "all recorded steps"
MORE = ", more classes"  # a variant of the second study
# The variants of Table 3 with a mixture's head, and the same with the paper's.
MIXTURES = {"FEOT GMM": "FEOT", "COT GMM": "COT", "GMM": "Simple", "GMM-EM": "Transductive", "GMM-EM+": "Transductive+"}
HALVES = ("FEOT", "COT", "Simple", "Transductive")  # those with a variant of scale ½ without log-determinant
# What a plan counts (plan_<unit>) to narrow a part of the interval (of_<unit>), and the column with the present number.
UNITS = {"trainings": "n_replicates", "classes": "n_classes", "episodes": "n_episodes"}
SHOT_BINS = {"shot 1": (1, 1), "shots 6 to 10": (6, 10), "shots past 10": (11, np.inf)}


class Contrast(NamedTuple):
    """One difference that a claim is about."""

    claim: str
    plus: str  # a variant, a stopping rule of Table 4, or "most queries"; for recall a bin of `SHOT_BINS`
    minus: str  # what it is compared with, or "" for nothing; for recall a second bin
    setting: str = VARIABLE  # or the shot of a fixed protocol; "1-shot minus 5-shot" is a difference of differences
    domain: str = "all"
    sign: int = 1  # that the claim expects

    @property
    def name(self) -> str:
        """The contrast in words, such as "COT minus Simple"."""
        if self.claim == "C2":
            return f"gain in recall at {self.plus}" + (f" minus at {self.minus}" if self.minus else "")
        return f"{self.plus} minus {self.minus}" if self.minus else self.plus


CONTRASTS = [
    *(Contrast("C1", "Transductive", "Simple", setting) for setting in ("1-shot", VARIABLE, "1-shot minus 5-shot")),
    Contrast("C2", "shot 1", ""),
    Contrast("C2", "shot 1", "shots 6 to 10"),
    Contrast("C2", "shots past 10", "", sign=-1),
    *(Contrast("C3", name, "Simple", domain=d) for name, own in (("COT", "in"), ("FEOT", "out")) for d in (own, "all")),
    *(Contrast("C3", "Transductive", name) for name in ("COT", "FEOT")),
    *(Contrast("C4", f"{name}+", name, sign=-1) for name in ("Transductive", "GMM-EM")),
    *(Contrast("C5", a, b, sign=-1) for a, b in MIXTURES.items()),
    *(Contrast("C5, the ½", f"{name} ½", name, sign=-1) for name in HALVES),
    *(Contrast("C5, log|Q|", mixture, f"{name} ½", sign=-1) for mixture, name in MIXTURES.items() if name in HALVES),
    *(Contrast("C6", rule, NONE) for rule in (FREE, RULE)),
    Contrast("C6, maximum", RULE, SHORT),
    Contrast("C6, minimum", RULE, LATE),
    Contrast("C6, limits", RULE, FREE),
    Contrast("C6, over-fitting", LONGEST, RULE, sign=-1),
    *(Contrast("C7", "most queries", "fewest", setting) for setting in ("1-shot", "5-shot")),
    *(Contrast("C8", name + MORE, name, shot) for name in ("Simple", "Transductive") for shot in ("1-shot", "5-shot")),
    *(Contrast("C8", "Transductive" + MORE, "Simple" + MORE, shot) for shot in ("1-shot", "5-shot")),
]


def claims_table(
    rows: pd.DataFrame, limits: tuple = (2, 4), margin: float = 0.005, more_classes: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Every contrast of every claim, a row for each kind of images, with the `COLUMNS`; differences in [−1, 1].

    `rows`, from `load_rows`, are those of all evaluations and replicates, without untrained networks. The stopping rule
    `limits` stands for the paper's. A difference up to the `margin` is no effect. C8 needs `rows_of_more_classes`.
    """
    tables = []
    for kind, of_kind in rows.assign(images=rows.get("images", "real")).groupby("images", sort=False, observed=True):
        evidence = Evidence(of_kind, limits, more_classes)
        for contrast in CONTRASTS:
            facts = {"images": kind, "contrast": contrast.name, **contrast._asdict()}
            pairs = evidence.pairs(contrast)
            if contrast.setting == VARIABLE or pairs is None or (pairs["way"] == 5).all():
                facts |= _published(contrast)
            tables.append(facts | _estimated(pairs, contrast.sign, margin))
    table = pd.DataFrame(tables, columns=COLUMNS)
    table["excluded"] = (table["difference"] - table["paper"]).abs() > table["interval"]
    table = table.fillna(dict.fromkeys(["replicates", "worst", "classes_at_hand"], ""))
    return _decided(table, margin).astype(dict.fromkeys(table.filter(regex="^(n|plan)_"), "Int64"))


def rows_of_more_classes(study: Study) -> pd.DataFrame | None:
    """The rows of the study `claims.more_classes`, of the evaluations in both; None without any."""
    if study.claims.more_classes is None:
        return None
    other = load_study(study.claims.more_classes)
    shared = [name for name in other.evaluations_of([]) if name in study.evaluations]
    return load_rows(other, shared, replicates=range(len(study.seeds))) if shared else None


def _decided(table: pd.DataFrame, margin: float) -> pd.DataFrame:
    """The table with the verdicts: see docs/glossary.md."""
    table = table.assign(verdict="open")
    for _, contrasts in table.groupby(["images", "claim"], sort=False):
        p = contrasts["p"].dropna().sort_values()
        corrected = (p * np.arange(len(p), 0, -1)).cummax()  # Holm
        told = corrected.index[corrected < 0.05]
        expected = np.sign(table.loc[told, "difference"]) == table.loc[told, "sign"]
        table.loc[told, "verdict"] = expected.map({True: "holds", False: "opposite"})
    table.loc[table["difference"].abs() + table["interval"] <= margin, "verdict"] = "no effect"
    table.loc[table["difference"].isna(), "verdict"] = "not evaluated"
    return table


def claim_verdicts(table: pd.DataFrame) -> pd.Series:
    """One verdict per kind of images and claim: the one that its contrasts share, or counts: "2 of 3 hold, 1 open"."""

    def combined(verdicts: pd.Series) -> str:
        if len(counts := verdicts[verdicts != "not evaluated"].value_counts()) < 2:
            return next(iter(counts.index), "not evaluated")
        words = [f"{counts[word]} {VERDICTS[word]}" for word in VERDICTS if word in counts]
        return ", ".join(words).replace(" ", f" of {counts.sum()} ", 1)

    return table.groupby(["images", "claim"], sort=False)["verdict"].agg(combined)


def claims_markdown(table: pd.DataFrame) -> str:
    """The table of `claims_table` for a page, in points: one table for each kind of images."""
    verdicts, parts, kinds = claim_verdicts(table), [], table["images"].nunique()
    for (kind, claim), contrasts in table.groupby(["images", "claim"], sort=False):
        if claim == table["claim"].iloc[0]:
            parts += ["", f"**{kind.capitalize()} images**"] if kinds > 1 else []
            parts += ["", "| claim | paper | here | each training | verdict |", "|---|---|---|---|---|"]
        claim_text = f"{claim}: {CLAIMS[claim]}".replace("|", "\\|")
        parts.append(f"| **{claim_text}** | | | | **{verdicts[kind, claim]}** |")
        for row in contrasts.itertuples():
            setting = row.setting + {"in": ", in-domain", "out": ", out-of-domain"}.get(row.domain, "")
            paper = _points(row.paper) + (f"; shuffled {_points(row.shuffled)}" if pd.notna(row.shuffled) else "")
            paper += " (excluded)" if row.excluded else ""
            ours = in_points(row.difference, row.interval)
            parts.append(f"| {row.contrast}, {setting} | {paper} | {ours} | {row.replicates} | {row.verdict} |")
    return "\n".join(parts[1:]).replace(" -", " −") + "\n"


def in_points(difference: float, interval: float) -> str:
    """A difference with its interval in points, such as "+6.1 ± 0.2" or "−0.02 ± 0.01"; nan gives an empty text."""
    if pd.isna(difference):
        return ""
    digits = _digits(interval)
    width = " (no interval)" if pd.isna(interval) else f" ± {100 * interval:.{digits}f}"
    return _points(difference, digits).replace("-", "−") + width


def _estimated(pairs: pd.DataFrame | None, sign: int, margin: float) -> dict:
    """The columns of a contrast that follow from its paired differences; none where it was not evaluated."""
    if pairs is None:
        return {}
    table = other_classes(pairs, "difference").set_index("dataset")
    mean, datasets = table.loc["all"], table.drop("all")
    replicates = pairs.groupby(["replicate", "dataset"])["difference"].mean().groupby("replicate").mean()
    points = (_points(value, _digits(mean["class_interval"])) for value in replicates)
    facts = {"difference": mean["difference"], "interval": mean["class_interval"], "episode_interval": mean["interval"]}
    facts |= {"p": p_value(of_classes(mean), mean["difference"]), "replicates": " ".join(points)}
    facts |= {"n_datasets": len(datasets), **mean[["n_classes", "n_episodes", "n_replicates"]]}
    facts["classes_at_hand"] = ", ".join(datasets.index[datasets["class_interval"].isna()])
    for unit, number in UNITS.items():  # each part may be a third of the margin's square
        if pd.notna(part := mean[f"of_{unit}"]) and (unit != "trainings" or len(replicates) > 1):
            facts[f"plan_{unit}"] = needed(part * mean[number], margin / np.sqrt(3))
    if list(datasets.index) == [""]:  # the units are classes, of all datasets together
        return facts | dict.fromkeys(["plan_episodes", "n_episodes", "n_datasets", "episode_interval"])
    worst = datasets.index[(sign * datasets["difference"]).argmin()]
    improved = (pairs["difference"] > 0) + 0.5 * (pairs["difference"] == 0)
    facts |= {"worst": f"{worst} {_points(datasets.loc[worst, 'difference'])}"}
    return facts | {"improved": improved.groupby(pairs["dataset"]).mean().mean()}


def _points(value: float, digits: int = 1) -> str:
    """A difference in points with its sign."""
    return "" if pd.isna(value) else f"{round(100 * value, digits) + 0.0:+.{digits}f}"


def _digits(interval: float) -> int:
    """Decimals of an interval in points, so that it does not read 0.0."""
    return next((digits for digits in (1, 2, 3) if round(100 * interval, digits) > 0), 1)


def _published(contrast: Contrast) -> dict[str, float]:
    """What the paper's tables print of a contrast, and what the authors found on shuffled data; nan for nothing."""
    if contrast.setting == VARIABLE:
        tables = pd.concat([read_published_averages(table) for table in (4, 3)])  # Table 4's first row is FEOT, too
        averages = tables.set_index(["model", "domain"])["accuracy"]
        plus, minus = (averages.get((model, contrast.domain), np.nan) for model in (contrast.plus, contrast.minus))
        found = published("shuffled-gains.csv").set_index(["model", "minus", "domain"])["difference"] / 100
        return {"paper": plus - minus, "shuffled": found.get((contrast.plus, contrast.minus, contrast.domain), np.nan)}
    fixed = read_published(2).query("way == 5").groupby(["model", "shot"])["accuracy"].mean()  # of both benchmarks
    if contrast.claim == "C7":  # of which Table 2 has nothing
        return {}
    models = [f"{name} CNAPS".replace(f"{MORE} CNAPS", " CNAPS + FETI") for name in (contrast.plus, contrast.minus)]
    gains = fixed[models[0]] - fixed[models[1]]
    return {"paper": gains[int(contrast.setting[0])] - (gains[5] if " minus " in contrast.setting else 0)}


class Evidence:
    """The rows of a study as paired differences, one frame per contrast."""

    def __init__(self, rows: pd.DataFrame, limits: tuple[int, int], more_classes: pd.DataFrame | None):
        self.rows, self.limits = rows, limits
        self.more_classes = rows.iloc[:0] if more_classes is None else more_classes
        # Accuracies per episode of an evaluation and a variant; several contrasts share them.
        self._episodes = cache(lambda *names: statistics.episode_accuracies(self._predictions(*names)))
        groups = rows.groupby("evaluation", sort=False, observed=True)
        fixed = (groups[["way", "shot"]].nunique() == 1).all(axis=1)
        first = groups[["way", "shot", "queries_per_class"]].first()
        self.evaluations = first.assign(fixed=fixed, trainings=groups["training"].unique().map(set))

    def pairs(self, contrast: Contrast) -> pd.DataFrame | None:
        """One `difference` per replicate, dataset and episode, with its `classes`; None where the study can't tell."""
        by_claim = {"C2": self._recall, "C6": self._stopping_rules, "C7": self._query_counts}
        pairs = by_claim.get(contrast.claim[:2], self._accuracy)(contrast)
        if pairs is not None and contrast.domain != "all":
            pairs = pairs[pairs["domain"].isin(statistics.DOMAINS[contrast.domain])]
        if pairs is None or pairs.empty:
            return None
        return pairs if "classes" in pairs else statistics.with_classes(pairs, self.rows)

    def _names(self, setting: str, *variants: str) -> list[str]:
        """The evaluations of a setting that hold these variants; fixed ones by way, then by queries per class."""
        needed = {ALL_VARIANTS[name.removesuffix(MORE)].training for name in variants}
        usable = self.evaluations[[needed <= trainings for trainings in self.evaluations["trainings"]]]
        if any(name.endswith(MORE) for name in variants):
            usable = usable[usable.index.isin(self.more_classes["evaluation"])]
        if setting == VARIABLE:
            return list(usable.index[~usable["fixed"]])
        usable = usable[usable["fixed"] & (usable["shot"] == int(setting.removesuffix("-shot")))]
        return list(usable.sort_values(["way", "queries_per_class"]).index)

    def _predictions(self, evaluation: str, variant: str) -> pd.DataFrame:
        rows = self.more_classes if variant.endswith(MORE) else self.rows
        rows = rows[(rows["evaluation"] == evaluation) & rows["dataset"].isin(self.rows["dataset"])]
        return variant_predictions(rows, variant.removesuffix(MORE), *self.limits)

    def _accuracy(self, contrast: Contrast) -> pd.DataFrame | None:
        sides, parts = (contrast.plus, contrast.minus), []
        for setting in contrast.setting.split(" minus "):
            if not (names := self._names(setting, *sides)):
                return None
            pairs = statistics.paired_episodes(*(self._episodes(names[0], side) for side in sides))
            parts.append(statistics.with_classes(pairs, self.rows))
        if len(parts) == 1:
            return parts[0]
        both = _of_equal_classes(*parts)  # an episode has the same classes at every shot, so the gains are paired
        return None if both is None else both.assign(difference=both["difference"] - both["difference_less"])

    def _recall(self, contrast: Contrast) -> pd.DataFrame | None:
        if not (names := self._names(VARIABLE, "Transductive", "Simple")):
            return None
        sides = (statistics.class_recall(self._predictions(names[0], name)) for name in ("Transductive", "Simple"))
        classes = statistics.paired_episodes(*sides, "recall", ["label"])
        parts = [classes[classes["shot"].between(*SHOT_BINS[name])] for name in (contrast.plus, contrast.minus) if name]
        if any(part.empty for part in parts):
            return None
        n, signs = sum(map(len, parts)), (1, -1)
        bins = [part["difference"] for part in parts]
        total = sum(sign * each.mean() for sign, each in zip(signs, bins))
        # Values whose pooled mean is the difference of the bins' means, with the same influence of every class.
        values = [total + sign * n / len(each) * (each - each.mean()) for sign, each in zip(signs, bins)]
        pooled = pd.concat(part.assign(all=0, difference=value) for part, value in zip(parts, values))
        # A class is a cluster, and an episode is one: variances add, less what both count (Cameron et al. 2011).
        units = ["dataset", "class_name"], EPISODE, [*EPISODE, "label"]
        clusters = [clustered(pooled, ["all"], "difference", unit) for unit in units]
        of_class, of_episode, of_both = (c.groupby("episode")["difference"].mean().sem() ** 2 for c in clusters)
        wider = max(1, 1 + (of_episode - of_both) / of_class) ** 0.5 if of_class else 1
        classes, centres = clusters[0], clusters[0].groupby("replicate")["difference"].transform("mean")
        classes["difference"] = centres + wider * (classes["difference"] - centres)
        return classes.assign(classes=[(str(number),) for number in classes["episode"]])

    def _stopping_rules(self, contrast: Contrast) -> pd.DataFrame | None:
        if not (names := self._names(VARIABLE, "Transductive")):
            return None
        rows = self.rows[self.rows["evaluation"] == names[0]]
        recorded = recorded_predictions(rows.iloc[:1]).shape[1] - 1
        rules = {NONE: (0, 0), FREE: (0, recorded), RULE: self.limits, LONGEST: (recorded, recorded)}
        rules |= {SHORT: (min(self.limits),) * 2, LATE: (0, self.limits[1])}
        sides = {name: rules[name] for name in (contrast.plus, contrast.minus)}
        accuracies = rule_accuracies(rows, VARIANTS["Transductive"].training, sides)
        return statistics.paired_episodes(*(accuracies[accuracies["variant"] == name] for name in sides))

    def _query_counts(self, contrast: Contrast) -> pd.DataFrame | None:
        usable = self.evaluations.loc[self._names(contrast.setting, "Transductive")].query("way == way.min()")
        if usable["queries_per_class"].nunique() < 2:  # the fewest come first
            return None
        most, fewest = (self._episodes(name, "Transductive") for name in usable.index[[-1, 0]])
        sides = [statistics.with_classes(episodes, self.rows) for episodes in (most, fewest)]
        return None if _of_equal_classes(*sides) is None else statistics.paired_query_counts(*sides)


def _of_equal_classes(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame | None:
    """The episodes of both side by side; None if their classes differ, as they do when drawn without replacement."""
    both = a.merge(b, on=["replicate", "dataset", "episode"], suffixes=("", "_less"))
    return both if (both["classes"] == both["classes_less"]).all() else None

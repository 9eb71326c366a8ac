"""What is stale: the keys inside checkpoints and row files, and the Snakefile's, follow from the same dependencies."""

import pytest
from record_files import write
from small_study import small_study

from tcnaps.config import fingerprint
from tcnaps.config.dependencies import CODE, JOBS, dependencies, job_key
from tcnaps.method.variants import TRAININGS

OF_JOBS = {
    "pretraining": {},
    "meta_training": {"training": "support"},
    "evaluation": {"training": "support", "evaluation": "variable", "dataset": "blobs"},
}


def content_of(study, job, **named):
    return dependencies(study, job, **(OF_JOBS.get(job, {}) | named))


@pytest.mark.parametrize("training", TRAININGS)
def test_a_changed_minimum_retrains_only_what_refines_in_training(training):
    study = small_study(trainings=list(TRAININGS))
    other = small_study(trainings=list(TRAININGS), refinement={"recorded_steps": 4, "minimum_steps": 1})
    refined = TRAININGS[training].refinement_in_training
    first, second = (job_key(["images"], s, "meta_training", training=training) for s in (study, other))
    assert (first != second) == refined


def test_validation_with_refinement_depends_on_the_limits():
    training = small_study().meta_training.model_dump(mode="json") | {"validate_refined": True}
    study = small_study(meta_training=training, refinement={"minimum_steps": 1})
    assert content_of(study, "meta_training")["limits"] == [1, 4]


def test_an_evaluation_depends_on_recorded_steps_and_domain_but_not_on_the_limits():
    study = small_study()
    assert content_of(study, "evaluation") == content_of(small_study(refinement={"recorded_steps": 4}), "evaluation")
    assert content_of(study, "evaluation") != content_of(small_study(refinement={"recorded_steps": 5}), "evaluation")
    assert content_of(study, "evaluation") != content_of(study, "evaluation", dataset="others")
    assert content_of(study, "evaluation")["domain"] == "in"


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({"data_folder": "elsewhere", "images_at_once": 7}, set()),
        ({"clustering": {"identity_weight": 2.0}}, {"meta_training", "evaluation", "soft_k_means", "differences"}),
        ({"seed": 1}, set(JOBS) - {"importing", "data"}),
    ],
)
def test_values_make_stale_what_reads_them(change, stale):
    assert {job for job in JOBS if content_of(small_study(), job) != content_of(small_study(**change), job)} == stale


def test_a_replicate_depends_on_its_own_seed_alone():
    plain, study, other = (small_study(replicates=seeds) for seeds in (1, [0, 5], [0, 6]))
    for job in ("pretraining", "meta_training"):
        assert content_of(study, job) == content_of(plain, job) == content_of(other, job)
        others = content_of(study, job), content_of(other.of_replicate(1), job)
        assert content_of(study.of_replicate(1), job) not in others
    shared = small_study(replicates=2, replicate_backbone=False)
    assert content_of(shared.of_replicate(1), "pretraining") == content_of(shared, "pretraining")
    assert content_of(study.of_replicate(1), "evaluation") == content_of(study, "evaluation")  # the same episodes


RUN_BY_ALL = ("tcnaps/method/backbone", "tcnaps/training/pretraining", "tcnaps/episodes/sampling")
PLACES = (*RUN_BY_ALL, "tcnaps/evaluation/evaluate", "tcnaps/evaluation/claims", "tcnaps/data/preparing")


def test_code_makes_stale_what_runs_it(tmp_path, monkeypatch):
    assert all((fingerprint.HOME / place).exists() for places in CODE.values() for place in places)
    monkeypatch.setattr(fingerprint, "HOME", write(tmp_path, *(f"{place}.py" for place in PLACES)))

    def keys():
        fingerprint.module_code.cache_clear()
        return {job: job_key([], small_study(), job, **OF_JOBS[job]) for job in OF_JOBS}

    def stale_after(place, code="\nnew = 1\n"):
        before, file = keys(), tmp_path / f"{place}.py"
        file.write_text(file.read_text() + code)
        after = keys()
        return {job for job in after if after[job] != before[job]}

    assert stale_after("tcnaps/method/backbone", "# a comment") == set()
    for place in RUN_BY_ALL:
        assert stale_after(place) == set(OF_JOBS), place
    assert stale_after("tcnaps/evaluation/evaluate") == {"evaluation"}
    for place in PLACES[-2:]:
        assert stale_after(place) == set(), place

"""What is stale: the keys inside checkpoints and row files, and the Snakefile's, follow from the same dependencies."""

import shutil
from pathlib import Path

import pytest
from small_study import small_study

import tcnaps
from tcnaps.config import dependencies as module, fingerprint
from tcnaps.config.dependencies import JOBS, dependencies, job_key, notebook_key
from tcnaps.method.variants import TRAININGS

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OF_JOBS = {
    "pretraining": {},
    "meta_training": {"training": "support"},
    "evaluation": {"training": "support", "evaluation": "variable", "dataset": "blobs"},
}


def found(study, job, **named):
    return dependencies(study, job, **(OF_JOBS.get(job, {}) | named))


@pytest.mark.parametrize("training", TRAININGS)
def test_a_changed_minimum_retrains_only_what_refines_in_training(training):
    """`make` and a notebook run by hand agree: their keys are made of the same dependencies."""
    study = small_study(trainings=list(TRAININGS))
    other = small_study(trainings=list(TRAININGS), refinement={"recorded_steps": 4, "minimum_steps": 1})
    refined = TRAININGS[training].refinement_in_training
    by_hand, by_make = (
        [key(s) for s in (study, other)]
        for key in (
            lambda s: job_key(["images"], s, "meta_training", training=training),
            lambda s: notebook_key(
                NOTEBOOKS / "03-meta-train.ipynb", [dependencies(s, "meta_training", training)], ["images"]
            ),
        )
    )
    assert (by_hand[0] != by_hand[1]) == (by_make[0] != by_make[1]) == refined


def test_validation_with_refinement_depends_on_the_limits():
    training = small_study().meta_training.model_dump(mode="json") | {"validate_refined": True}
    limits = [
        found(small_study(meta_training=training, refinement={"minimum_steps": n}), "meta_training")["limits"]
        for n in (1, 2)
    ]
    assert limits == [[1, 4], [2, 4]]


def test_an_evaluation_depends_on_recorded_steps_and_domain_but_not_on_the_limits():
    study = small_study()
    assert found(study, "evaluation") == found(small_study(refinement={"recorded_steps": 4}), "evaluation")
    assert found(study, "evaluation") != found(small_study(refinement={"recorded_steps": 5}), "evaluation")
    assert found(study, "evaluation") != found(study, "evaluation", dataset="others")
    assert found(study, "evaluation")["domain"] == "in"


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({"data_folder": "elsewhere", "images_at_once": 7}, set()),
        ({"statistics": {"interval": "released"}}, {"figures"}),
        ({"clustering": {"identity_weight": 2.0}}, {"meta_training", "evaluation", "soft_k_means", "differences"}),
        ({"seed": 1}, set(JOBS) - {"importing", "data"}),
    ],
)
def test_values_make_stale_what_reads_them(change, stale):
    assert {job for job in JOBS if found(small_study(), job) != found(small_study(**change), job)} == stale


def test_a_replicate_depends_on_its_own_seed_alone():
    plain, study, other = (small_study(replicates=seeds) for seeds in (1, [0, 5], [0, 6]))
    for job in ("pretraining", "meta_training"):
        assert found(study, job) == found(plain, job) == found(other, job)
        assert found(study.of_replicate(1), job) not in (found(study, job), found(other.of_replicate(1), job))
    shared = small_study(replicates=2, replicate_backbone=False)
    assert found(shared.of_replicate(1), "pretraining") == found(shared, "pretraining")
    assert found(study.of_replicate(1), "evaluation") == found(study, "evaluation")  # the same episodes


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the library; `package(name)` changes one of its modules."""
    for package in fingerprint.PACKAGES:
        original = Path(tcnaps.__file__).parents[1] / package
        shutil.copytree(original, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for place in (module, fingerprint):
        monkeypatch.setattr(place, "HOME", tmp_path)

    def change(name):
        path = tmp_path / f"{name}.py"
        path.write_text(path.read_text() + "\nnew = 1\n")
        fingerprint._code.cache_clear()

    return change


def test_code_makes_stale_what_runs_it(package):
    study = small_study()

    def changed(name):
        before = {job: found(study, job) for job in OF_JOBS}
        package(name)
        return {job for job in OF_JOBS if found(study, job) != before[job]}

    for name in ("data/__init__", "episodes/loading", "figures/style", "config/settings"):
        assert changed(f"tcnaps/{name}") == set(), name
    assert changed("tcnaps/method/backbone") == set(OF_JOBS)
    assert changed("tcnaps/training/networks") == set(OF_JOBS)
    assert changed("tcnaps/evaluation/evaluate") == {"evaluation"}

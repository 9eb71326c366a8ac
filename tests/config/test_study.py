import copy

import pytest
import yaml

from tcnaps.config import ConfigError, load_study, project_root

STUDY = {
    "name": "small",
    "datasets": {"glyphs": {"source": "miniature", "domain": "in"}, "digits": {"source": "miniature", "domain": "out"}},
    "pretraining": {"datasets": ["glyphs"]},
    "meta_training": {
        "datasets": ["glyphs"],
        "validation_datasets": ["glyphs", "digits"],
        "protocol": {"kind": "variable"},
    },
    "evaluations": {
        "5-way": {
            "protocol": {"kind": "fixed", "way": 5, "shot": 1},
            "datasets": ["digits"],
            "trainings": ["support_and_query"],
        }
    },
}


def changed(path, value):
    """The study above with one value set, by its path."""
    content = copy.deepcopy(STUDY)
    *sections, key = path
    section = content
    for name in sections:
        section = section.setdefault(name, {})
    if value is None:
        del section[key]
    else:
        section[key] = value
    return content


@pytest.fixture
def load(tmp_path):
    def load(content):
        file = tmp_path / "study.yaml"
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return load_study(file)

    return load


def test_a_study_is_read_with_the_papers_defaults(load):
    study = load(STUDY)
    assert study.results_folder.parts[-2:] == ("results", study.name)
    assert study.evaluations["5-way"].protocol.shot == 1
    assert study.evaluations["5-way"].episodes == 600
    assert study.refinement.minimum_steps == 2 and study.refinement.maximum_steps == 4
    assert study.meta_training.learning_rate == 5e-4 and study.pretraining.epochs == 125
    assert len(study.trainings) == 6


def test_a_study_cannot_be_changed(load):
    with pytest.raises(ValueError, match="frozen"):
        load(STUDY).seed = 1


WRONG = [
    # unknown and mistyped keys, at every depth, with the nearest one named
    (("sed",), 1, r"sed: there is no such key; did you mean 'seed'"),
    (("refinement", "minimum_step"), 1, r"refinement\.minimum_step: .*did you mean 'minimum_steps'"),
    (("datasets", "glyphs", "domian"), "in", r"datasets\.glyphs\.domian: .*did you mean 'domain'"),
    (("evaluations", "5-way", "episode"), 9, r"evaluations\.5-way\.episode: .*did you mean 'episodes'"),
    (("evaluations", "5-way", "protocol", "shots"), 9, r"5-way\.protocol.*shots.*did you mean 'shot'"),
    (("meta_training", "protocol", "max_way"), 9, r"max_way: .*maximum_way"),
    (("xyzzy",), 1, r"xyzzy: there is no such key; known: .*meta_training"),
    # missing keys
    (("name",), None, "name: this key is missing"),
    (("pretraining", "datasets"), None, r"pretraining\.datasets: this key is missing"),
    # values of the wrong kind or size
    (("seed",), "nought", r"seed: .*\(got 'nought'\)"),
    (("seed",), -1, r"seed: .*greater than or equal to 0"),
    (("image_size",), 16, r"image_size: .*32"),
    (("name",), "a/b", r"name: .*pattern"),
    (("datasets", "glyphs", "domain"), "inside", r"datasets\.glyphs\.domain: .*'in' or 'out'"),
    (("evaluations", "5-way", "trainings"), ["feott"], r"evaluations\.5-way\.trainings.*feott"),
    (("evaluations", "5-way", "protocol", "kind"), "fix", r"evaluations\.5-way\.protocol.*fix"),
    (("evaluations", "5-way", "protocol", "way"), 1, r"way: .*2"),
    # values that contradict each other
    (("evaluations", "5-way", "datasets"), ["digit"], r"5-way\.datasets: 'digit' .*did you mean 'digits'"),
    (("pretraining", "datasets"), [], r"pretraining\.datasets is empty.*glyphs"),
    (("pretraining", "datasets"), ["digits"], r"pretraining\.datasets: 'digits' is out-of-domain"),
    (("meta_training", "datasets"), ["digits"], r"meta_training\.datasets: 'digits' is out-of-domain"),
    (("trainings",), ["support"], r"evaluations\.5-way\.trainings: 'support_and_query' is not among .*support"),
    (("refinement", "maximum_steps"), 11, r"maximum_steps 11 exceeds recorded_steps 10"),
    (("meta_training", "protocol"), {"kind": "variable", "maximum_way": 4}, r"maximum_way 4 is below minimum_way 5"),
    (
        ("meta_training", "protocol"),
        {"kind": "variable", "maximum_support_size": 40},
        r"maximum_support_size 40 is below maximum_way 50",
    ),
    (("name",), "published", r"results/published holds the paper's own tables"),
    (("evaluations",), {}, r"evaluations: .*at least 1"),
    (("evaluations", "5-way", "trainings"), [], r"evaluations\.5-way\.trainings is empty: name at least one"),
    (("evaluations", "../5-way"), STUDY["evaluations"]["5-way"], r"evaluations\.\.\./5-way.*pattern"),
    # what would be counted twice
    (("pretraining", "datasets"), ["glyphs", "glyphs"], r"pretraining\.datasets: 'glyphs' is there twice"),
    (
        ("evaluations", "5-way", "trainings"),
        ["support_and_query", "support_and_query"],
        r"5-way\.trainings: 'support_and_query' is there twice",
    ),
    (("trainings",), ["support_and_query", "support_and_query"], r"trainings: 'support_and_query' is there twice"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[f"{'.'.join(w[0])}={w[1]}" for w in WRONG])
def test_what_cannot_be_meant_is_named(load, path, value, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(changed(path, value))
    assert "study.yaml" in str(error.value)
    assert "pydantic" not in str(error.value)


def test_every_mistake_is_named_at_once(load):
    content = changed(("sed",), 1) | {"image_size": 3}
    with pytest.raises(ConfigError, match="(?s)image_size.*sed|sed.*image_size"):
        load(content)


def test_files_that_are_no_study(load):
    with pytest.raises(ConfigError, match="not valid YAML"):
        load("a: [1")
    with pytest.raises(ConfigError, match="(?s)not valid YAML.*'seed' is there twice.*line 2"):
        load("seed: 1\nseed: 2")
    with pytest.raises(ConfigError, match="must hold the keys of a study.*not list"):
        load("- 1")
    with pytest.raises(ConfigError, match="not NoneType"):
        load("")


def test_a_missing_file_names_those_there_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="No study at nowhere.yaml. Studies there are: none"):
        load_study("nowhere.yaml")
    (tmp_path / "Snakefile").touch()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text(yaml.safe_dump(STUDY))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")  # as in JupyterLab
    with pytest.raises(ConfigError, match="configs/mine.yaml"):
        load_study("configs/mien.yaml")
    assert load_study("configs/mine.yaml").name == "small"
    assert project_root() == tmp_path


def test_evaluations_are_found_by_what_they_compare(load):
    fixed = {"kind": "fixed", "way": 5, "shot": 1}
    one = {"datasets": ["glyphs"], "trainings": ["support", "support_and_query"]}
    study = load(
        STUDY
        | {
            "evaluations": {
                "many": one | {"protocol": fixed | {"queries_per_class": 20}},
                "few": one | {"protocol": fixed | {"queries_per_class": 10}},
                "alone": one | {"protocol": fixed | {"shot": 5}, "trainings": ["support_and_query"]},
                "variable": one | {"protocol": {"kind": "variable"}},
            }
        }
    )
    assert list(study.evaluations_of(["support", "support_and_query"], "fixed")) == ["few"]
    assert set(study.evaluations_of(["support_and_query"], "fixed")) == {"few", "alone"}
    assert list(study.evaluations_of(["support_and_query"], "variable")) == ["variable"]


def test_the_studies_of_the_project_are_valid():
    files = sorted((project_root() / "configs").glob("*.yaml"))
    assert files
    for file in files:
        assert load_study(file).name == file.stem

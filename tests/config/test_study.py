import pytest
import yaml
from nested import changed

from tcnaps.config import ConfigError, load_study, project_root, settings

FIXED, VARIABLE = {"kind": "fixed", "way": 5, "shot": 1}, {"kind": "variable"}
STUDY = {
    "name": "small",
    "datasets": {"glyphs": {"source": "miniature", "domain": "in"}, "digits": {"source": "miniature", "domain": "out"}},
    "pretraining": {"datasets": ["glyphs"]},
    "meta_training": {"datasets": ["glyphs"], "validation_datasets": ["glyphs", "digits"], "protocol": VARIABLE},
    "evaluations": {"5-way": {"protocol": FIXED, "datasets": ["digits"], "trainings": ["support_and_query"]}},
}


@pytest.fixture
def load(tmp_path):
    def load(content):
        file = tmp_path / "study.yaml"
        file.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
        return load_study(file)

    return load


def test_a_study_is_read_with_the_papers_defaults_and_cannot_be_changed(load):
    study = load(STUDY)
    assert study.results_folder.parts[-2:] == ("results", study.name)
    evaluation = study.evaluations["5-way"]
    assert evaluation.protocol.shot == 1 and evaluation.episodes == 600 and len(study.trainings) == 6
    assert study.refinement.minimum_steps == 2 and study.refinement.maximum_steps == 4
    assert study.meta_training.learning_rate == 5e-4 and study.pretraining.epochs == 125
    with pytest.raises(ValueError, match="frozen"):
        study.seed = 1


WRONG = [
    # unknown and mistyped keys, at every depth, with the nearest one named
    (("sed",), 1, "sed: .*'seed'"),
    (("datasets", "glyphs", "domian"), "in", r"datasets\.glyphs\.miniature\.domian: .*'domain'"),
    (("evaluations", "5-way", "protocol", "shots"), 9, r"5-way\.protocol.*shots.*'shot'"),
    (("xyzzy",), 1, "xyzzy: .*known: .*meta_training"),
    (("replicate",), 1, "replicate: .*'replicates'"),
    # missing keys
    (("name",), None, "name"),
    # values of the wrong kind or size
    (("seed",), "nought", "seed: .*'nought'"),
    (("name",), "a/b", "name"),
    (("preset",), "relased", "preset: .*'paper' or 'released'.*relased"),
    (("evaluations", "5-way", "trainings"), ["suport"], r"evaluations\.5-way\.trainings.*'support'"),
    (("datasets", "glyphs", "source"), "minature", r"datasets\.glyphs: .*'minature'.*'miniature', 'records'"),
    (("evaluations",), {}, "evaluations"),
    (("evaluations", "../5-way"), STUDY["evaluations"]["5-way"], r"evaluations\.\.\./5-way"),
    (("imported",), {"support_log_determinant": "weights.pt"}, "imported.support_log_determinant"),
    # values that contradict each other
    (("evaluations", "5-way", "datasets"), ["digit"], r"5-way\.datasets: 'digit' .*'digits'"),
    (("pretraining", "datasets"), [], r"pretraining\.datasets .*glyphs"),
    (("pretraining", "datasets"), ["digits"], r"pretraining\.datasets: 'digits'"),
    (("pretraining", "datasets"), ["glyphs", "glyphs"], r"pretraining\.datasets: 'glyphs' is there twice"),
    (("trainings",), ["support"], r"evaluations\.5-way\.trainings: 'support_and_query'"),
    (("refinement", "maximum_steps"), 11, "maximum_steps is 11, but only 10 steps are recorded"),
    (("meta_training", "protocol"), {"kind": "variable", "maximum_way": 4}, "maximum_way 4 .*minimum_way 5"),
    (("meta_training", "protocol"), {"kind": "variable", "maximum_support_size": 40}, "maximum_support_size 40"),
    (("name",), "published", "results/published"),
    (("pretraining", "image_sizes"), {42: 7, 84: 1}, "image_sizes holds 8 epochs"),
    (("pretraining", "image_sizes"), {84: 25, 96: 100}, "image_size, 84"),
    (("datasets", "all"), STUDY["datasets"]["digits"], "datasets: 'all'"),
    (("replicates",), 0, "replicates"),
    (("replicates",), [1, 2, 1], "replicates"),
    (("claims", "margin"), 0, "claims.margin"),
    (("meta_training", "protocol"), FIXED | {"replacement": False}, "meta-training needs replacement: true"),
]
MALFORMED = [b"name: small # \xe9\n", b"name: [1\n", b"name: small\nname: other\n", b"seed: " + b"[" * 800]
MALFORMED += [b"? [a, b]\n: 1\n", b"clustering: {identity_weight: .nan}\n", b"name: &a [*a]\n", b'"\\ud800": 1\n']
MALFORMED += [b"- 1", b""]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[f"{'.'.join(w[0])}={w[1]}" for w in WRONG])
def test_what_cannot_be_meant_is_named(load, path, value, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(changed(STUDY, path, value))
    assert "study.yaml" in str(error.value) and "pydantic" not in str(error.value)


@pytest.mark.parametrize("content", MALFORMED)
def test_malformed_files_are_refused_in_a_few_lines(load, content):
    with pytest.raises(ConfigError, match="study.yaml") as error:
        load(content)
    assert len(str(error.value)) < 2000


def test_a_key_that_is_there_twice_is_named_with_its_line(load):
    with pytest.raises(ConfigError, match="'epochs' is there twice\n.*line 4, column 3"):
        load(b"name: two\npretraining:\n  epochs: 1\n  epochs: 2\n")


def test_a_scale_that_is_learned_starts_from_a_number(load):
    learned = STUDY | {"trainings": ["support_and_query", "support_and_query_learned_scale"]}
    assert load(learned | {"clustering": {"scale": 0.5}}).trainings[-1] == "support_and_query_learned_scale"
    with pytest.raises(ConfigError, match="clustering.scale: 'support_and_query_learned_scale'"):
        load(learned | {"clustering": {"scale": "auto"}})


def test_a_notebook_shows_the_message_alone(root, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    (root / "study.yaml").write_text(yaml.safe_dump(STUDY | {"sed": 1}))
    shell = InteractiveShell()
    shell.run_cell("from tcnaps.config import load_study\nload_study('study.yaml')")
    printed = capsys.readouterr().out.strip()
    assert len(printed.splitlines()) <= 2 and "sed: there is no such key; did you mean 'seed'?" in printed


def test_a_missing_file_names_those_there_are(root, tmp_path, monkeypatch):
    for path in ("nowhere.yaml", tmp_path, "x" * 5000, "a\0b"):
        with pytest.raises(ConfigError, match="Studies there are: none. Go to the project folder"):
            load_study(path)
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
    both = {"datasets": ["glyphs"], "trainings": ["support", "support_and_query"]}
    evaluations = {
        "both": both | {"protocol": FIXED},
        "alone": both | {"protocol": FIXED, "trainings": ["support_and_query"]},
        "variable": both | {"protocol": VARIABLE},
        "start": both | {"protocol": VARIABLE, "before_training": True},
        "unequal": both | {"protocol": FIXED | {"query_concentration": 1.0}},
    }
    study = load(STUDY | {"evaluations": evaluations})
    assert list(study.evaluations_of(["support", "support_and_query"], "fixed")) == ["both"]
    assert set(study.evaluations_of(["support_and_query"], "fixed")) == {"both", "alone"}
    assert list(study.evaluations_of(["support_and_query"], "variable")) == ["variable"]
    assert list(study.evaluations_of(["support"], "unequal")) == ["unequal"]


@pytest.mark.parametrize(
    ("flags", "precision"), [("fpu avx2 avx512_bf16", "bfloat16"), ("fpu avx2", "float32"), (None, "float32")]
)
def test_the_precision_auto_becomes_what_the_processor_is_fast_in(load, tmp_path, monkeypatch, flags, precision):
    processor = tmp_path / "cpuinfo"
    if flags:
        processor.write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(settings, "PROCESSOR", processor)
    study = load(STUDY | {"precision": "auto"})
    assert study.precision == study.model_dump()["precision"] == precision
    assert load(STUDY | {"precision": "float32"}).precision == "float32"


def test_replicates_have_seeds_and_folders_of_their_own(load):
    assert load(STUDY).seeds == (0,) and load(STUDY | {"seed": 4, "replicates": 3}).seeds == (4, 5, 6)
    study = load(STUDY | {"replicates": [7, 2]})
    other = study.of_replicate(1)
    assert (study.training_seed, other.training_seed, other.backbone_seed) == (7, 2, 2)
    assert load(STUDY | {"replicates": 2, "replicate_backbone": False}).of_replicate(1).backbone_seed == 0
    assert other.results_folder == study.results_folder / "replicate-1"
    assert other.seed == study.seed and other.model_dump() == study.model_dump()


def test_replicates_that_cannot_be_are_named(load):
    for imported in ("support", "backbone"):
        with pytest.raises(ConfigError, match="replicates"):
            load(STUDY | {"replicates": 2, "imported": {imported: "x.pt"}})
    with pytest.raises(ConfigError, match="0 to 1, not 2"):
        load(STUDY | {"replicates": 2}).of_replicate(2)

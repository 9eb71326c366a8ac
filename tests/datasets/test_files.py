"""Datasets of files: what is prepared is right, in whatever way it came about, or an error says what is wrong."""

import csv
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import file_readers
import numpy as np
import pytest
from file_readers import encoded
from joblib.externals.loky import get_reusable_executor

from tcnaps.config import settings
from tcnaps.datasets import DatasetError, files
from tcnaps.datasets.decoding import decode
from tcnaps.datasets.listing import FileSource, ImageFile, Listing, read_file
from tcnaps.datasets.preparing import MissingFiles, ensure_prepared, open_prepared

SIZE = 8
ROOT = Path(__file__).resolve().parents[2]
TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(files, "IMAGES_PER_CHUNK", 4)


@pytest.fixture
def readers(tmp_path, monkeypatch):
    """Makes `file_readers.noted` note what is read."""
    folder = tmp_path / "readers"
    folder.mkdir()
    monkeypatch.setenv(file_readers.ROOT, str(folder))
    get_reusable_executor().shutdown()  # idle processes of other tests have another environment
    return file_readers


@pytest.fixture
def images(tmp_path) -> Path:
    """split/class/*.png: 3 + 2 classes of 7, 8, 9 and 7, 8 images, all different."""
    root = tmp_path / "images"
    seed = 0
    for split, classes in (("train", "abc"), ("test", "de")):
        for k, name in enumerate(classes):
            (root / split / name).mkdir(parents=True)
            for number in range(7 + k):
                (root / split / name / f"{name}{number}.png").write_bytes(encoded(seed := seed + 1))
    return root


def list_images(root: Path, **options) -> Listing:
    """What a reader does: classes and images of split/class/*, in order of names."""
    splits = {
        split.name: {
            folder.name: [ImageFile(str(file)) for file in sorted(folder.iterdir())]
            for folder in sorted(split.iterdir())
        }
        for split in sorted(root.iterdir())
    }
    return Listing(splits, **options)


def made_of(root: Path, read=read_file, processes=1, decoding=settings.Decoding(), listing=None, options=None, **keys):
    """How the images are prepared."""
    dataset = settings.Folder(source="folder", domain="in", path=str(root), **keys)
    make = listing or (lambda: list_images(root, read=read, **(options or {})))
    source = FileSource(make, (root,), "It is on the shelf.")
    return files.preparation("birds", dataset, SIZE, decoding, processes, source)


def prepare(folder: Path, root: Path, **options) -> dict:
    return ensure_prepared(made_of(root, **options), folder)


def arrays_of(folder: Path, root: Path, **options) -> dict[str, np.ndarray]:
    made = made_of(root, **options)
    splits = ensure_prepared(made, folder)["splits"]
    return {split: np.array(open_prepared(made, folder, split).images) for split in splits}


def expected(root: Path, read=None, without=()) -> dict[str, np.ndarray]:
    """The arrays by a plain loop."""
    read = read or (lambda path: decode(Path(path).read_bytes(), SIZE, "bilinear"))
    return {
        split: np.stack([read(i.path) for images in part.values() for i in images if Path(i.path).name not in without])
        for split, part in list_images(root).splits.items()
    }


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for split in wanted:
        np.testing.assert_array_equal(found[split], wanted[split])


# What is prepared


@pytest.mark.parametrize("processes", [1, 2])
def test_arrays_hold_every_image_in_its_row(images, tmp_path, processes):
    found = arrays_of(tmp_path / "data", images, processes=processes)
    assert_same(found, expected(images))
    made = made_of(images)
    opened = open_prepared(made, tmp_path / "data", "test")
    assert opened.class_names == ("d", "e") and opened.class_sizes.tolist() == [7, 8]
    left = {file.name for file in made.place(tmp_path / "data").iterdir()} - {".lock"}
    assert left == {"train.npy", "test.npy", "index.json"}


@pytest.mark.parametrize(
    ("key", "listing", "study", "wanted"),
    [
        (None, None, "aligned corners", "aligned corners"),
        (None, "lanczos", "aligned corners", "lanczos"),
        ("bilinear", "lanczos", "aligned corners", "bilinear"),
    ],
)
def test_the_datasets_resampling_goes_first_then_its_sources_then_the_studys(
    images, tmp_path, key, listing, study, wanted
):
    options = {"resampling": key, "options": {"resampling": listing}, "decoding": settings.Decoding(resampling=study)}
    found = arrays_of(tmp_path / "data", images, **options)
    assert_same(found, expected(images, lambda path: decode(Path(path).read_bytes(), SIZE, wanted)))


# Images that can't be read

UNREADABLE = ("empty.png", "text.png", "cut.png", "folder.png", "lost.png")


@pytest.fixture
def damaged(images) -> Path:
    """Five files that can't be read among the others."""
    folder = images / "train" / "b"
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.png").write_bytes(b"no image")
    (folder / "cut.png").write_bytes(encoded(99)[:-100])
    folder = images / "test" / "d"
    (folder / "folder.png").mkdir()
    (folder / "lost.png").symlink_to("nowhere")
    return images


@pytest.mark.parametrize("processes", [1, 2])
def test_unreadable_images_are_left_out_and_reported(damaged, tmp_path, processes):
    found = arrays_of(tmp_path / "data", damaged, processes=processes)
    assert_same(found, expected(damaged, without=UNREADABLE))
    made = made_of(damaged)
    place = made.place(tmp_path / "data")
    with (place / "unreadable.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {Path(row["file"]).name for row in rows} == set(UNREADABLE)
    assert all((row["split"], row["class"]) == Path(row["file"]).parts[-3:-1] and row["reason"] for row in rows)
    index = prepare(tmp_path / "data", damaged)
    assert index["splits"]["train"]["class_sizes"] == [7, 8, 9] and index["splits"]["test"]["class_sizes"] == [7, 8]
    assert index["notes"] == [f"unreadable images left out: 5, listed in {place / 'unreadable.csv'}"]


def test_refusing_names_files_and_counts_all_and_repaired_images_are_read_again(damaged, tmp_path, readers):
    options = {"unreadable": "refuse", "read": readers.noted}
    for _ in range(2):
        with pytest.raises(DatasetError, match="(?s)'birds': 5 images can't be read; nothing .*empty.png: it is empty"):
            prepare(tmp_path / "data", damaged, **options)
    assert len(readers.reads()) == 44 + 3 + 5  # the second time, chunks with unreadable images alone
    for name in UNREADABLE:
        (file,) = (folder / name for folder in damaged.glob("*/*") if os.path.lexists(folder / name))
        file.rmdir() if name == "folder.png" else file.unlink()
    assert_same(arrays_of(tmp_path / "data", damaged, **options), expected(damaged))
    for file in (damaged / "train" / "b").iterdir():
        file.write_bytes(b"")
    (damaged / "train" / "b" / "new.png").write_bytes(b"")
    with pytest.raises(DatasetError, match="no image of class 'b' can be read"):
        prepare(tmp_path / "data", damaged)


def test_a_disk_that_goes_away_is_no_heap_of_unreadable_images(images, tmp_path, readers):
    readers.set_trap("unplug", "a5.png")
    with pytest.raises(MissingFiles, match="'birds': there is no .*images. It is on the shelf."):
        prepare(tmp_path / "data", images, read=readers.noted)
    readers.disarm()
    (tmp_path / "unplugged").rename(images)
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))


def test_a_dataset_without_classes_is_refused(images, tmp_path):
    with pytest.raises(DatasetError, match="'birds': no images were found"):
        prepare(tmp_path / "data", images, listing=lambda: Listing({"train": {}}))


# Interruptions

SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, str(Path({tests!r}).parent)]
import file_readers, test_files
from tcnaps.datasets import files
files.IMAGES_PER_CHUNK = 4
test_files.prepare(Path(sys.argv[1]), Path(sys.argv[2]), read=file_readers.noted, processes=int(sys.argv[3]))
"""  # no main guard: it must not need one


def test_a_killed_preparation_goes_on_and_ends_the_same(damaged, tmp_path, readers):
    whole = arrays_of(tmp_path / "whole", damaged)
    readers.set_trap("kill the parent", "e7.png")  # the last of all
    command = [sys.executable, "-c", SCRIPT.format(tests=str(TESTS)), tmp_path / "data", damaged, "2"]
    nowhere = subprocess.DEVNULL  # no pipes: workers whose parent was killed hold them for a while
    status = subprocess.run(command, cwd=ROOT, stdout=nowhere, stderr=nowhere, timeout=120).returncode
    assert status == -signal.SIGKILL
    place = made_of(damaged).place(tmp_path / "data")
    assert not (place / "index.json").exists() and len(readers.reads()) > 30
    readers.disarm()
    assert_same(arrays_of(tmp_path / "data", damaged, read=readers.noted, processes=2), whole)
    assert len(readers.reads()) <= 30
    for file in ("train.npy", "test.npy", "unreadable.csv"):
        assert (place / file).read_bytes() == (made_of(damaged).place(tmp_path / "whole") / file).read_bytes()
    assert not list(place.glob("*.partial"))


@pytest.mark.parametrize(
    ("damage", "n_read"),
    [("nothing", 15), ("an image is gone", 38), ("a written pixel has changed", 16), ("the array is gone", 39)],
)
def test_going_on_reads_what_is_left_and_keeps_nothing_wrong(images, tmp_path, readers, damage, n_read):
    readers.set_trap("interrupt", "d2.png")
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "data", images, read=readers.noted)
    readers.disarm()
    assert len(readers.reads()) == 26
    place = made_of(images).place(tmp_path / "data")
    array = place / "train.npy.partial"
    match damage:
        case "an image is gone":
            (images / "train" / "a" / "a0.png").unlink()
        case "a written pixel has changed":
            content = bytearray(array.read_bytes())
            content[-1] ^= 1
            array.write_bytes(content)
        case "the array is gone":
            array.unlink()
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))
    assert len(readers.reads()) == n_read


def test_a_process_that_dies_is_an_error_that_says_so(images, tmp_path, readers):
    readers.set_trap("kill this process", "c4.png")
    with pytest.raises(DatasetError, match="killed or ran out of memory. Use fewer processes"):
        prepare(tmp_path / "data", images, read=readers.noted, processes=2)
    readers.disarm()
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))


def test_a_full_disk_is_an_error_that_says_how_much_room_is_needed(images, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DatasetError, match=r"no room for .*train.npy.partial, 4.74e-06 GB \(No space.*data_folder"):
        prepare(tmp_path / "data", images)
    assert not list((tmp_path / "data").rglob("*.npy*"))


def test_a_folder_that_cannot_be_made_is_an_error(images):
    with pytest.raises(DatasetError, match="'birds' can't be prepared: .*Not a directory.*data_folder"):
        prepare(images / "train" / "a" / "a0.png", images)


# Stale and moved files


@pytest.mark.parametrize("change", ["added", "renamed", "deep"])
def test_changed_files_are_prepared_anew(images, tmp_path, change, capsys):
    arrays_of(tmp_path / "data", images)
    if change == "renamed":
        (images / "train" / "a" / "a0.png").rename(images / "train" / "a" / "z.png")
    else:
        folder = images / "train" / "a" if change == "added" else images / "test" / "f"
        folder.mkdir(exist_ok=True)
        (folder / "new.png").write_bytes(encoded(999))
    assert_same(arrays_of(tmp_path / "data", images), expected(images))
    assert "birds is prepared anew: the files that it was made from have changed" in capsys.readouterr().err


def test_changes_while_it_is_prepared_are_noticed_afterwards(images, tmp_path):
    def listing():
        found = list_images(images)
        (images / "train" / "a" / "late.png").write_bytes(encoded(999))
        return found

    prepare(tmp_path / "data", images, listing=listing)
    assert len(arrays_of(tmp_path / "data", images)["train"]) == 25


def test_prepared_arrays_are_used_without_the_originals(images, tmp_path):
    whole = arrays_of(tmp_path / "data", images)
    shutil.move(tmp_path / "data", tmp_path / "other-machine")
    shutil.rmtree(images)
    assert_same(arrays_of(tmp_path / "other-machine", images), whole)
    (made_of(images).place(tmp_path / "other-machine") / "train.npy").unlink()
    message = "(?s)'birds': there is no .*images. It is on the shelf.*Nor is it prepared in .*: .*is missing or cut"
    with pytest.raises(MissingFiles, match=message):
        prepare(tmp_path / "other-machine", images)

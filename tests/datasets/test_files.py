"""Datasets of files: what is prepared is right, in whatever way it came about, or an error says what is wrong."""

import csv
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import file_readers
import numpy as np
import pytest
from file_readers import encoded
from PIL import Image

from tcnaps.config import settings
from tcnaps.datasets import DatasetError, listing_scan
from tcnaps.datasets.arrays import PROGRESS
from tcnaps.datasets.decoding import decode
from tcnaps.datasets.files import Files, preparation
from tcnaps.datasets.listing import FileSource, ImageFile, Listing, SplitListing, read_path
from tcnaps.datasets.preparing import MissingFiles, ensure_prepared, open_prepared, state, verify

SIZE = 8
ROOT = Path(__file__).resolve().parents[2]
TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(listing_scan, "IMAGES_PER_CHUNK", 4)


@pytest.fixture
def readers(tmp_path, monkeypatch):
    """Makes `file_readers.noted` note what is read."""
    folder = tmp_path / "readers"
    folder.mkdir()
    monkeypatch.setenv(file_readers.ROOT, str(folder))
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
    splits = {}
    for split in sorted(root.iterdir()):
        classes = sorted(split.iterdir())
        parts = [tuple(ImageFile(str(file)) for file in sorted(folder.iterdir())) for folder in classes]
        splits[split.name] = SplitListing(tuple(folder.name for folder in classes), tuple(parts))
    return Listing(splits, **options)


def times(root: Path) -> dict:
    return {str(folder): folder.stat().st_mtime_ns for folder in sorted(root.glob("*/*"))}


def dataset_of(
    root: Path, read=read_path, processes=1, decoding=settings.Decoding(), listing=None, options=None, **keys
) -> Files:
    dataset = settings.Folder(source="folder", domain="in", path=str(root), **keys)
    make = listing or (lambda: list_images(root, read=read, **(options or {})))
    found = FileSource(lambda: times(root), make, (root,), "It is on the shelf.")
    return Files("birds", dataset, SIZE, decoding, root, found, "reader 1", processes)


def prepare(folder: Path, root: Path, **options) -> dict:
    return ensure_prepared(preparation(dataset_of(root, **options)), folder)


def place_of(folder: Path, root: Path, **options) -> Path:
    return preparation(dataset_of(root, **options)).place(folder)


def arrays_of(folder: Path, root: Path, **options) -> dict[str, np.ndarray]:
    made = preparation(dataset_of(root, **options))
    splits = ensure_prepared(made, folder)["splits"]
    return {split: np.array(open_prepared(made, folder, split).images) for split in splits}


def expected(root: Path, read=None, without=()) -> dict[str, np.ndarray]:
    """The arrays by a plain loop."""
    return {
        split: np.stack(
            [
                (read or (lambda path: decode(Path(path), SIZE, "bilinear")))(image.path)
                for images in part.images
                for image in images
                if Path(image.path).name not in without
            ]
        )
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
    made = preparation(dataset_of(images))
    opened = open_prepared(made, tmp_path / "data", "test")
    assert opened.class_names == ("d", "e") and opened.class_sizes.tolist() == [7, 8]
    np.testing.assert_array_equal(opened.image(1, 3), decode(images / "test" / "e" / "e3.png", SIZE, "bilinear"))
    verify(made, tmp_path / "data")
    left = {file.name for file in made.place(tmp_path / "data").iterdir()} - {".lock"}
    assert left == {"train.npy", "test.npy", "index.json"}


def read_bytes(image):
    return Path(image.path).read_bytes()


def read_colours(image):
    return np.asarray(Image.open(image.path))


def read_grey(image):
    return np.asarray(Image.open(image.path).convert("L"))


@pytest.mark.parametrize("resampling", ["bilinear", "lanczos", "aligned corners"])
@pytest.mark.parametrize("read", [read_bytes, read_colours, read_grey])
def test_readers_may_give_bytes_or_pixels(images, tmp_path, read, resampling):
    found = arrays_of(tmp_path / "data", images, read=read, resampling=resampling)

    def as_png(path):
        stream = io.BytesIO()
        Image.open(path).convert("L" if read is read_grey else "RGB").save(stream, "PNG")
        return decode(stream.getvalue(), SIZE, resampling)

    assert_same(found, expected(images, as_png))


@pytest.mark.parametrize("read", [read_path, read_colours])
def test_boxes_are_cut_out(images, tmp_path, read):
    file = str(images / "test" / "d" / "d0.png")
    boxes = [(0, 0, 5, 5), (3, 2, 12, 10), (2, 2, 1, 5), (0, 0, 13, 10), (0, 0, 12, 10)]
    part = SplitListing(("a",), ([ImageFile(file, box) for box in boxes],))
    listing = Listing({"test": part}, read=read, box=True)
    found = arrays_of(tmp_path / "data", images, listing=lambda: listing)
    whole = Image.open(file)
    wanted = [whole.crop(box).resize((SIZE, SIZE), Image.Resampling.BILINEAR) for box in (boxes[0], boxes[1], boxes[4])]
    np.testing.assert_array_equal(found["test"], np.stack(wanted))
    with (place_of(tmp_path / "data", images) / "unreadable.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["position"] for row in rows] == ["2 2 1 5", "0 0 13 10"]
    assert all("does not lie within its 12 x 10 pixels" in row["reason"] for row in rows)


@pytest.mark.parametrize(
    ("key", "listing", "study", "wanted"),
    [
        (None, None, "bilinear", "bilinear"),
        (None, None, "aligned corners", "aligned corners"),
        (None, "lanczos", "aligned corners", "lanczos"),
        ("bilinear", "lanczos", "aligned corners", "bilinear"),
    ],
)
def test_the_datasets_own_resampling_goes_first_then_its_sources_then_the_studys(
    images, tmp_path, key, listing, study, wanted
):
    found = arrays_of(
        tmp_path / "data",
        images,
        resampling=key,
        options={"resampling": listing},
        decoding=settings.Decoding(resampling=study),
    )
    assert_same(found, expected(images, lambda path: decode(Path(path), SIZE, wanted)))


def test_studies_that_decode_differently_do_not_undo_each_others_work(images, tmp_path, readers):
    pytest.importorskip("simplejpeg")
    ways = [settings.Decoding(), settings.Decoding(resampling="aligned corners"), settings.Decoding(jpeg_dct="fast")]
    for decoding in ways * 2:
        prepare(tmp_path / "data", images, read=readers.noted, decoding=decoding)
    assert len(readers.reads()) == len(ways) * 39


def test_names_that_are_no_utf8(images, tmp_path, capsys):
    folder = os.fsencode(images / "train" / "a")
    odd = os.path.join(os.fsencode(images / "train"), b"caf\xe9")
    os.rename(folder, odd)
    with open(os.path.join(odd, b"\xff.png"), "wb"):
        pass
    found = arrays_of(tmp_path / "data", images)
    assert len(found["train"]) == 24
    opened = open_prepared(preparation(dataset_of(images)), tmp_path / "data", "train")
    assert opened.class_names == ("b", "c", os.fsdecode(b"caf\xe9"))
    assert b"caf\xe9/\xff.png" in (place_of(tmp_path / "data", images) / "unreadable.csv").read_bytes()


# Images that can't be read


UNREADABLE = {
    "empty.png": (b"", "it is empty"),
    "cut.jpg": (encoded(1, (40, 40), "JPEG")[:500], "cut short"),
    "cut.png": (encoded(1, (40, 40))[:500], "cut short"),
    "text.png": (b"<html>not found</html>", "no image of a format"),
}


@pytest.fixture
def damaged(images) -> Path:
    """Unreadable images in two classes; a folder, a pipe, a device and a dangling link among others."""
    for k, (name, (content, _)) in enumerate(UNREADABLE.items()):
        (images / "train" / "ab"[k % 2] / name).write_bytes(content)
    place = images / "test" / "d"
    (place / "folder.png").mkdir()
    (place / "link.png").symlink_to(images / "nowhere.png")
    (place / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(place / "pipe.png")
    return images


REASONS = {name: reason for name, (_, reason) in UNREADABLE.items()} | {
    "folder.png": "it is not a file",
    "link.png": "No such file",
    "zero.png": "it is not a file",
    "pipe.png": "it is not a file",
}


def test_what_cannot_be_read_is_left_out_listed_and_counted(damaged, tmp_path, capsys):
    found = arrays_of(tmp_path / "data", damaged)
    assert_same(found, expected(damaged, without=REASONS))
    place = place_of(tmp_path / "data", damaged)
    with (place / "unreadable.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {Path(row["file"]).name for row in rows} == REASONS.keys() and len(rows) == 8
    for row in rows:
        file = Path(row["file"])
        assert REASONS[file.name] in row["reason"]
        assert (row["split"], row["class"]) == (file.parent.parent.name, file.parent.name)
    index = json.loads((place / "index.json").read_text())
    assert index["unreadable"] == {"train": 4, "test": 4}
    assert index["splits"]["train"]["class_sizes"] == [7, 8, 9] and index["splits"]["test"]["class_sizes"] == [7, 8]
    verify(preparation(dataset_of(damaged)), tmp_path / "data")


def test_refusing_names_ten_and_counts_all(damaged, tmp_path):
    for number in range(6):
        (damaged / "train" / "c" / f"z{number}.png").write_bytes(b"")
    with pytest.raises(DatasetError, match="'birds': 14 images can't be read; nothing was prepared") as raised:
        prepare(tmp_path / "data", damaged, unreadable="refuse")
    assert str(raised.value).count("\n  /") == 10 and "and 4 more" in str(raised.value)
    assert "empty.png: it is empty" in str(raised.value)
    place = place_of(tmp_path / "data", damaged)
    assert not (place / "index.json").exists() and not list(place.glob("*.npy"))


def test_repaired_images_are_read_again_and_only_they(damaged, tmp_path, readers):
    with pytest.raises(DatasetError, match="8 images can't be read"):
        prepare(tmp_path / "data", damaged, unreadable="refuse", read=readers.noted)
    assert len(readers.reads()) == 39 + 8
    for k, name in enumerate(UNREADABLE):
        (damaged / "train" / "ab"[k % 2] / name).write_bytes(encoded(100 + k))
    for k, name in enumerate(["folder.png", "link.png", "zero.png", "pipe.png"]):
        file = damaged / "test" / "d" / name
        file.rmdir() if name == "folder.png" else file.unlink()
        file.write_bytes(encoded(200 + k))
    found = arrays_of(tmp_path / "data", damaged, unreadable="refuse", read=readers.noted)
    assert_same(found, expected(damaged))
    assert 8 <= len(readers.reads()) < 39


def test_what_was_left_out_is_refused_once_a_study_says_so(damaged, tmp_path, readers):
    prepare(tmp_path / "data", damaged, read=readers.noted)
    readers.reads()
    message = "(?s)8 images can't be read; .*birds-8-.* was made without them.*folder.png: it is"
    for _ in range(2):
        with pytest.raises(DatasetError, match=message):
            prepare(tmp_path / "data", damaged, unreadable="refuse", read=readers.noted)
    assert readers.reads() == []
    prepare(tmp_path / "data", damaged, read=readers.noted)
    assert readers.reads() == []


def test_a_class_without_a_readable_image_is_an_error(images, tmp_path):
    for file in (images / "train" / "b").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DatasetError, match="split 'train': no image of class 'b' can be read.*b0.png. Repair"):
        prepare(tmp_path / "data", images)
    assert not (place_of(tmp_path / "data", images) / "index.json").exists()


@pytest.mark.parametrize("moment", ["a5.png", "e7.png"])
def test_a_disk_that_goes_away_is_no_heap_of_unreadable_images(images, tmp_path, readers, moment):
    readers.set_trap("unplug", moment)
    with pytest.raises(MissingFiles, match="'birds': there is no .*images. It is on the shelf."):
        prepare(tmp_path / "data", images, read=readers.noted)
    assert not (place_of(tmp_path / "data", images) / "index.json").exists()
    readers.disarm()
    (tmp_path / "unplugged").rename(images)
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))


def test_pixels_of_another_kind_are_unreadable(images, tmp_path):
    def read(image):
        return {
            "a0.png": np.zeros((4, 4, 4), np.uint8),
            "a1.png": np.zeros((4, 4), np.float32),
            "a2.png": np.zeros((0, 4, 3), np.uint8),
        }.get(Path(image.path).name, np.ones((4, 4), np.uint8))

    index = prepare(tmp_path / "data", images, read=read)
    assert index["unreadable"] == {"train": 3, "test": 0}
    report = place_of(tmp_path / "data", images) / "unreadable.csv"
    assert "an array of float32 (4, 4); uint8" in report.read_text()


# Interruptions

SCRIPT = """
import signal
import sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started with it ignored
sys.path[:0] = [{tests!r}, str(Path({tests!r}).parent)]
import file_readers, test_files
from tcnaps.datasets import listing_scan
listing_scan.IMAGES_PER_CHUNK = 4
test_files.prepare(Path(sys.argv[1]), Path(sys.argv[2]), read=file_readers.noted, processes=int(sys.argv[3]))
"""  # no main guard: it must not need one


def prepare_elsewhere(*arguments: object) -> int:
    command = [sys.executable, "-c", SCRIPT.format(tests=str(TESTS)), *map(str, arguments)]
    nowhere = subprocess.DEVNULL  # no pipes: workers whose parent was killed hold them for a while
    return subprocess.run(command, cwd=ROOT, stdout=nowhere, stderr=nowhere, timeout=120).returncode


@pytest.mark.parametrize("action", ["kill the parent", "interrupt the parent"])
def test_an_interrupted_preparation_goes_on_and_ends_the_same(damaged, tmp_path, readers, action):
    whole = arrays_of(tmp_path / "whole", damaged)
    readers.set_trap(action, "e7.png")  # the last of all
    status = prepare_elsewhere(tmp_path / "data", damaged, 2)
    assert status == (-signal.SIGKILL if action == "kill the parent" else -signal.SIGINT)
    place = place_of(tmp_path / "data", damaged)
    assert not (place / "index.json").exists()
    assert len(readers.reads()) > 30
    readers.disarm()
    assert_same(arrays_of(tmp_path / "data", damaged, read=readers.noted, processes=2), whole)
    assert len(readers.reads()) <= 30
    for file in ("train.npy", "test.npy", "unreadable.csv"):
        assert (place / file).read_bytes() == (place_of(tmp_path / "whole", damaged) / file).read_bytes()
    assert not list(place.glob("*.partial"))


@pytest.fixture
def interrupted(images, tmp_path, readers):
    """A preparation that ended within the first class of the test split; 24 images of 39 are finished."""
    readers.set_trap("interrupt", "d2.png")
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "data", images, read=readers.noted)
    readers.disarm()
    assert len(readers.reads()) == 26
    return place_of(tmp_path / "data", images)


def test_going_on_reads_only_what_is_left(interrupted, images, tmp_path, readers):
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))
    assert len(readers.reads()) == 15


@pytest.mark.parametrize(
    ("damage", "read_again"),
    [
        ("an image has changed", 4),
        ("an image is touched", 4),
        ("an image is gone", 24),
        ("a written pixel has changed", 4),
        ("the array is gone", 24),
        ("the progress is cut short", 24),
    ],
)
def test_nothing_wrong_is_kept(interrupted, images, tmp_path, readers, damage, read_again):
    progress, array = interrupted / PROGRESS, interrupted / "train.npy.partial"
    image = images / "train" / "a" / "a5.png"
    match damage:
        case "an image has changed":
            image.write_bytes(encoded(999))
        case "an image is touched":
            os.utime(image)
        case "an image is gone":
            (images / "train" / "a" / "a0.png").unlink()
        case "a written pixel has changed":
            content = bytearray(array.read_bytes())
            content[-1] ^= 1
            array.write_bytes(content)
        case "the array is gone":
            array.unlink()
        case "the progress is cut short":
            progress.write_bytes(progress.read_bytes()[:-30])
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))
    assert len(readers.reads()) == 15 - (damage == "an image is gone") + read_again


# Workers


def test_a_process_that_dies_is_an_error_that_says_so(images, tmp_path, readers):
    readers.set_trap("kill this process", "c4.png")
    with pytest.raises(DatasetError, match="(?s)killed or ran out of memory, near .*train.*Use fewer processes"):
        prepare(tmp_path / "data", images, read=readers.noted, processes=2)
    readers.disarm()
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mistake_in_a_reader_is_an_error_that_names_the_image(images, tmp_path, readers, processes):
    readers.set_trap("stumble", "c4.png")
    with pytest.raises(RuntimeError, match="a mistake in the reader") as raised:
        prepare(tmp_path / "data", images, read=readers.noted, processes=processes)
    assert "c4.png" in raised.value.__notes__[0]


# A full disk


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_that_says_how_much_room_is_needed(images, tmp_path, monkeypatch, kind):
    def full(*arguments):
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr(os, "posix_fallocate", full)
    message = r"'birds' takes 7.49e-06 GB in .*birds-8-.*, where .* GB are free \(.*data_folder"
    with pytest.raises(DatasetError, match=message):
        prepare(tmp_path / "data", images)
    assert not list((tmp_path / "data").rglob("*.npy*"))


def test_a_folder_that_cannot_be_made_is_an_error(images, tmp_path):
    for folder in (tmp_path / ("x" * 300), images / "train" / "a" / "a0.png"):
        with pytest.raises(DatasetError, match="'birds' can't be prepared: .*(too long|Not a directory).*data_folder"):
            prepare(folder, images)
    with pytest.raises(MissingFiles, match="'birds': there is no /x+"):
        prepare(tmp_path / "data", Path("/" + "x" * 5000))


# Stale and moved files


def test_changed_files_are_prepared_anew(images, tmp_path, capsys):
    arrays_of(tmp_path / "data", images)
    (images / "train" / "a" / "new.png").write_bytes(encoded(999))
    found = arrays_of(tmp_path / "data", images)
    assert_same(found, expected(images))
    assert len(found["train"]) == 25
    assert "birds is prepared anew: the files that it was made from have changed" in capsys.readouterr().err


def test_touched_folders_cost_no_decoding(images, tmp_path, readers):
    prepare(tmp_path / "data", images, read=readers.noted)
    readers.reads()
    os.utime(images / "train" / "a")
    for _ in range(2):
        prepare(tmp_path / "data", images, read=readers.noted)
        assert readers.reads() == []
    made = preparation(dataset_of(images))
    assert state(made, made.place(tmp_path / "data"))[0] is not None


def test_a_moved_project_costs_no_decoding(images, tmp_path, readers):
    files = dataset_of(Path("images"), read=readers.noted, listing=lambda: list_images(images, read=readers.noted))
    for root in (images, tmp_path / "moved"):
        images.rename(root) if root != images else None
        there = FileSource(lambda root=root: times(root), lambda root=root: list_images(root, read=readers.noted))
        ensure_prepared(preparation(replace(files, root=root, source=there)), tmp_path / "data")
    assert len(readers.reads()) == 39


def test_another_reader_looks_again_but_decodes_only_if_it_finds_something_else(images, tmp_path, readers):
    def with_reader(listing):
        files = dataset_of(images, read=readers.noted, listing=listing)
        return ensure_prepared(preparation(replace(files, reader="reader 2")), tmp_path / "data")

    def fewer():
        splits = list_images(images, read=readers.noted).splits
        return Listing({"test": splits["test"]}, read=readers.noted)

    prepare(tmp_path / "data", images, read=readers.noted)
    readers.reads()
    with_reader(lambda: list_images(images, read=readers.noted))
    assert readers.reads() == []
    os.utime(images / "train" / "a")
    assert list(with_reader(fewer)["splits"]) == ["test"]
    assert not (place_of(tmp_path / "data", images) / "train.npy").exists()


def test_prepared_arrays_are_used_without_the_originals(images, tmp_path, readers):
    whole = arrays_of(tmp_path / "data", images)
    shutil.move(tmp_path / "data", tmp_path / "other-machine")
    shutil.rmtree(images)
    assert_same(arrays_of(tmp_path / "other-machine", images, read=readers.noted), whole)
    assert readers.reads() == []


def test_without_originals_and_arrays_the_error_says_what_is_missing_and_how_to_get_it(images, tmp_path):
    message = "(?s)'birds': there is no /nowhere. It is on the shelf.*Nor is it prepared in .*: nothing is there"
    with pytest.raises(MissingFiles, match=message):
        prepare(tmp_path / "data", Path("/nowhere"))
    assert not (tmp_path / "data").exists()
    prepare(tmp_path / "data", images)
    (place_of(tmp_path / "data", images) / "train.npy").unlink()
    shutil.rmtree(images)
    with pytest.raises(MissingFiles, match="train.npy is missing or cut short"):
        prepare(tmp_path / "data", images)


def test_changes_while_it_is_prepared_are_noticed_afterwards(images, tmp_path):
    files = dataset_of(images)

    def listing():
        found = list_images(images)
        (images / "train" / "a" / "late.png").write_bytes(encoded(999))
        return found

    hasty = replace(files, source=FileSource(lambda: times(images), listing, (images,), ""))
    ensure_prepared(preparation(hasty), tmp_path / "data")
    assert len(arrays_of(tmp_path / "data", images)["train"]) == 25


def test_remarks_count_what_is_left_and_are_kept(images, tmp_path, capsys):
    for number in range(1, 7):
        (images / "test" / "d" / f"d{number}.png").write_bytes(b"")
    index = prepare(tmp_path / "data", images)
    assert index["remarks"][0].startswith("test: 1 class has a single image ('d')")
    assert "birds: test: 1 class has a single image" in capsys.readouterr().err


# Real images


@pytest.mark.parametrize("name", ["cifar10", "omniglot"])
def test_real_images(tmp_path, name, monkeypatch):
    folder = Path(os.environ.get("TCNAPS_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not (folder / f"{name}.tar").is_file():
        pytest.skip(f"no real images at {folder}: set TCNAPS_DATA to the folder that holds {name}.tar")
    monkeypatch.setattr(listing_scan, "IMAGES_PER_CHUNK", 100)
    with tarfile.open(folder / f"{name}.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    test = tmp_path / name / "test"
    classes = sorted({file.parent for file in test.rglob("*.*")})
    names = tuple(str(place.relative_to(test)) for place in classes)
    files = [sorted(place.iterdir()) for place in classes]
    part = SplitListing(names, tuple([ImageFile(str(file)) for file in found] for found in files))
    found = arrays_of(tmp_path / "data", test, listing=lambda: Listing({"test": part}), processes=2)
    assert len(found["test"]) == {"cifar10": 2000, "omniglot": 2120}[name]
    for pixels, file in zip(found["test"], sum(files, [])):
        plain = Image.open(file).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(pixels, plain)

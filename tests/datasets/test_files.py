"""Datasets of files: what is prepared is right, in whatever way it came about, or an error says what is wrong."""

import csv
import errno
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import file_readers
import numpy as np
import pytest
from file_readers import encoded
from PIL import Image

from tcnaps.config import settings
from tcnaps.datasets import DatasetError, decoding_jobs, journal, listing_scan, source
from tcnaps.datasets.decoding import decode
from tcnaps.datasets.files import Files, preparation
from tcnaps.datasets.listing import FileSource, ImageFile, Listing, SplitListing, read_path
from tcnaps.datasets.preparing import MissingFiles, state

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
    root: Path,
    read=read_path,
    image_size: int = SIZE,
    processes: int | None = 1,
    decoding: settings.Decoding = settings.Decoding(),
    listing=None,
    options: dict | None = None,
    **keys,
) -> Files:
    dataset = settings.Folder(source="folder", domain="in", path=str(root), **keys)
    make = listing or (lambda: list_images(root, read=read, **(options or {})))
    found = FileSource(lambda: times(root), make, (root,), "It is on the shelf.")
    return Files("birds", dataset, image_size, decoding, root, found, "reader 1", processes)


def prepare(folder: Path, root: Path, **options) -> dict:
    return source.ensure_prepared(preparation(dataset_of(root, **options)), folder)


def arrays_of(folder: Path, root: Path, **options) -> dict[str, np.ndarray]:
    index = prepare(folder, root, **options)
    made = preparation(dataset_of(root, **options))
    return {split: np.array(source.open_prepared(made, folder, split).images) for split in index["splits"]}


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


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_arrays_hold_every_image_in_its_row(images, tmp_path, processes):
    found = arrays_of(tmp_path / "data", images, processes=processes)
    assert_same(found, expected(images))
    opened = source.open_prepared(preparation(dataset_of(images)), tmp_path / "data", "test")
    assert opened.class_names == ("d", "e") and opened.class_sizes.tolist() == [7, 8]
    np.testing.assert_array_equal(opened.image(1, 3), decode(images / "test" / "e" / "e3.png", SIZE, "bilinear"))
    source.verify(preparation(dataset_of(images)), tmp_path / "data")
    assert {file.name for file in (tmp_path / "data" / "birds-8").iterdir()} == {
        "train.npy",
        "test.npy",
        "index.json",
        ".lock",
    }


def test_prepared_once_and_opened_afterwards(images, tmp_path, readers):
    prepare(tmp_path / "data", images, read=readers.noted)
    assert len(readers.reads()) == 24 + 15
    prepare(tmp_path / "data", images, read=readers.noted)
    assert readers.reads() == []


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


def test_rows_of_an_array_file(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 6, 6), np.uint8)
    root = tmp_path / "images"
    root.mkdir()
    np.save(root / "all.npy", pixels)
    names = [ImageFile(str(root / "all.npy"), (row,)) for row in range(20)]
    parts = SplitListing(("a", "b"), (names[:13], names[13:]))
    listing = Listing({"test": parts}, read=file_readers.from_array)
    found = arrays_of(tmp_path / "data", root, listing=lambda: listing, image_size=6, processes=2)
    np.testing.assert_array_equal(found["test"], np.repeat(pixels[..., None], 3, axis=-1))


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
    with (tmp_path / "data" / "birds-8" / "unreadable.csv").open() as stream:
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


def test_orientation_counts_only_where_it_should(tmp_path):
    turned = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 3
    (tmp_path / "images" / "test" / "a").mkdir(parents=True)
    file = tmp_path / "images" / "test" / "a" / "a.png"
    turned.save(file, exif=exif)
    upright = turned.rotate(180)
    for orient, wanted in ((True, upright), (False, turned)):
        found = arrays_of(tmp_path / f"{orient}", tmp_path / "images", options={"orient": orient})
        np.testing.assert_array_equal(found["test"][0], wanted.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def test_studies_that_decode_differently_do_not_undo_each_others_work(images, tmp_path, readers):
    ways = [
        (settings.Decoding(), "birds-8"),
        (settings.Decoding(resampling="aligned corners"), "birds-8-aligned-corners"),
        (settings.Decoding(jpeg_dct="fast"), "birds-8-fast-dct"),
        (settings.Decoding(resampling="aligned corners", jpeg_dct="fast"), "birds-8-aligned-corners-fast-dct"),
    ]
    pytest.importorskip("simplejpeg")
    for _ in range(2):
        for decoding, name in ways:
            prepare(tmp_path / "data", images, read=readers.noted, decoding=decoding)
            assert (tmp_path / "data" / name / "index.json").exists()
    assert len(readers.reads()) == len(ways) * 39


def test_the_hierarchy_and_the_order_of_splits_are_kept(images, tmp_path):
    def listing():
        splits = list_images(images).splits
        train = splits["train"]
        return Listing(
            {
                "train": SplitListing(train.class_names, train.images, ("x", "x", "y")),
                "test": SplitListing(("d", "e"), splits["test"].images, spans=(np.array([0, 1]), np.array([1]))),
            }
        )

    index = prepare(tmp_path / "data", images, listing=listing)
    assert list(index["splits"]) == ["train", "test"]
    made = preparation(dataset_of(images, listing=listing))
    assert source.open_prepared(made, tmp_path / "data", "train").superclasses == ("x", "x", "y")
    spans = source.open_prepared(made, tmp_path / "data", "test").spans
    assert [span.tolist() for span in spans] == [[0, 1], [1]]
    with pytest.raises(DatasetError, match="'birds' has no split 'valid'; it has: train, test"):
        source.open_prepared(made, tmp_path / "data", "valid")


def test_names_that_are_no_utf8(images, tmp_path, capsys):
    folder = os.fsencode(images / "train" / "a")
    odd = os.path.join(os.fsencode(images / "train"), b"caf\xe9")
    os.rename(folder, odd)
    with open(os.path.join(odd, b"\xff.png"), "wb"):
        pass
    found = arrays_of(tmp_path / "data", images)
    assert len(found["train"]) == 24
    opened = source.open_prepared(preparation(dataset_of(images)), tmp_path / "data", "train")
    assert opened.class_names == ("b", "c", os.fsdecode(b"caf\xe9"))
    assert b"caf\xe9/\xff.png" in (tmp_path / "data" / "birds-8" / "unreadable.csv").read_bytes()


# Images that can't be read


def png_of(width: int, height: int) -> bytes:
    """The beginning of a PNG that claims to be so large."""
    parts = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(1000))]
    chunks = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


UNREADABLE = {
    "empty.png": (b"", "it is empty"),
    "cut.jpg": (encoded(1, (40, 40), "JPEG")[:500], "cut short"),
    "cut.png": (encoded(1, (40, 40))[:500], "cut short"),
    "text.png": (b"<html>not found</html>", "no image of a format"),
    "huge.png": (png_of(13_000, 12_000), "13000 x 12000 pixels"),
}
READABLE = {
    "grey.jpg": encoded(2, format="JPEG", mode="L"),
    "cmyk.jpg": encoded(3, format="JPEG", mode="CMYK"),
    "palette.gif": encoded(4, format="GIF", mode="P"),
    "bits16.png": encoded(5, format="PNG", mode="I;16"),
    "mislabelled.png": encoded(6, format="JPEG"),
}


@pytest.fixture
def damaged(images) -> Path:
    """Unreadable images in two classes, among odd ones that can be read; a folder, a pipe and a dangling link too."""
    for name, content in READABLE.items():
        (images / "train" / "a" / name).write_bytes(content)
    for k, (name, (content, _)) in enumerate(UNREADABLE.items()):
        (images / "train" / "ab"[k % 2] / name).write_bytes(content)
    (images / "test" / "d" / "folder.png").mkdir()
    (images / "test" / "d" / "link.png").symlink_to(images / "nowhere.png")
    os.mkfifo(images / "test" / "d" / "pipe.png")
    return images


REASONS = {name: reason for name, (_, reason) in UNREADABLE.items()} | {
    "folder.png": "it is not a file",
    "link.png": "No such file",
    "pipe.png": "it is not a file",
}


@pytest.mark.parametrize("processes", [1, 2])
def test_what_cannot_be_read_is_left_out_listed_and_counted(damaged, tmp_path, capsys, processes):
    found = arrays_of(tmp_path / "data", damaged, processes=processes)
    assert_same(found, expected(damaged, without=REASONS))
    place = tmp_path / "data" / "birds-8"
    with (place / "unreadable.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {Path(row["file"]).name for row in rows} == REASONS.keys() and len(rows) == 8
    for row in rows:
        file = Path(row["file"])
        assert REASONS[file.name] in row["reason"]
        assert (row["split"], row["class"]) == (file.parent.parent.name, file.parent.name)
    index = json.loads((place / "index.json").read_text())
    assert index["unreadable"] == {"train": 5, "test": 3}
    assert index["splits"]["train"]["class_sizes"] == [12, 8, 9] and index["splits"]["test"]["class_sizes"] == [7, 8]
    assert "birds: 8 unreadable images were left out" in (said := capsys.readouterr().err)
    assert str(place / "unreadable.csv") in said
    source.verify(preparation(dataset_of(damaged)), tmp_path / "data")


def test_refusing_names_ten_and_counts_all(damaged, tmp_path):
    for number in range(6):
        (damaged / "train" / "c" / f"z{number}.png").write_bytes(b"")
    with pytest.raises(DatasetError, match="'birds': 14 images can't be read; nothing was prepared") as raised:
        prepare(tmp_path / "data", damaged, unreadable="refuse")
    assert str(raised.value).count("\n  /") == 10 and "and 4 more" in str(raised.value)
    assert "folder.png: it is not a file" in str(raised.value)
    place = tmp_path / "data" / "birds-8"
    assert not (place / "index.json").exists() and not list(place.glob("*.npy"))


def test_repaired_images_are_read_again_and_only_they(damaged, tmp_path, readers):
    with pytest.raises(DatasetError, match="8 images can't be read"):
        prepare(tmp_path / "data", damaged, unreadable="refuse", read=readers.noted)
    assert len(readers.reads()) == 39 + 5 + 8
    for k, name in enumerate(UNREADABLE):
        (damaged / "train" / "ab"[k % 2] / name).write_bytes(encoded(100 + k))
    for k, name in enumerate(["folder.png", "link.png", "pipe.png"]):
        file = damaged / "test" / "d" / name
        file.rmdir() if name == "folder.png" else file.unlink()
        file.write_bytes(encoded(200 + k))
    found = arrays_of(tmp_path / "data", damaged, unreadable="refuse", read=readers.noted)
    assert_same(found, expected(damaged))
    assert 8 <= len(readers.reads()) < 39


def test_what_was_left_out_is_refused_once_a_study_says_so(damaged, tmp_path, readers):
    prepare(tmp_path / "data", damaged, read=readers.noted)
    readers.reads()
    message = "(?s)8 images can't be read; .*birds-8 was made without them.*folder.png: it is"
    for _ in range(2):
        with pytest.raises(DatasetError, match=message):
            prepare(tmp_path / "data", damaged, unreadable="refuse", read=readers.noted)
    assert readers.reads() == []
    prepare(tmp_path / "data", damaged, read=readers.noted)
    assert readers.reads() == []


def test_a_class_without_a_readable_image_is_an_error(images, tmp_path):
    for file in (images / "train" / "b").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DatasetError, match="split 'train': no image of class 'b' can be read.*b0.png: it is empty"):
        prepare(tmp_path / "data", images)
    assert not (tmp_path / "data" / "birds-8" / "index.json").exists()


@pytest.mark.parametrize("moment", ["a5.png", "e7.png"])
def test_a_disk_that_goes_away_is_no_heap_of_unreadable_images(images, tmp_path, readers, moment):
    readers.set_trap("unplug", moment)
    with pytest.raises(MissingFiles, match="'birds': there is no .*images. It is on the shelf."):
        prepare(tmp_path / "data", images, read=readers.noted)
    assert not (tmp_path / "data" / "birds-8" / "index.json").exists()
    readers.disarm()
    (tmp_path / "unplugged").rename(images)
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))


def test_a_system_error_is_tried_again(images, tmp_path, readers, capsys):
    readers.set_trap("no rights", "b3.png")
    with pytest.raises(DatasetError, match="b3.png: .*Permission denied"):
        prepare(tmp_path / "data", images, read=readers.noted, unreadable="refuse")
    readers.disarm()
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted, unreadable="refuse"), expected(images))


def test_pixels_of_another_kind_are_unreadable(images, tmp_path):
    def read(image):
        return {
            "a0.png": np.zeros((4, 4, 4), np.uint8),
            "a1.png": np.zeros((4, 4), np.float32),
            "a2.png": np.zeros((0, 4, 3), np.uint8),
        }.get(Path(image.path).name, np.ones((4, 4), np.uint8))

    index = prepare(tmp_path / "data", images, read=read)
    assert index["unreadable"] == {"train": 3, "test": 0}
    assert "an array of float32 (4, 4); uint8" in (tmp_path / "data" / "birds-8" / "unreadable.csv").read_text()


def test_a_file_too_large_to_be_an_image(images, tmp_path, monkeypatch):
    monkeypatch.setattr(decoding_jobs, "MAXIMUM_BYTES", 1000)
    (images / "train" / "a" / "film.png").write_bytes(encoded(0) + bytes(1000))
    prepare(tmp_path / "data", images)
    assert "more than 1000: scale it down" in (tmp_path / "data" / "birds-8" / "unreadable.csv").read_text()


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


def prepare_elsewhere(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", SCRIPT.format(tests=str(TESTS)), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("action", ["kill the parent", "interrupt the parent"])
def test_an_interrupted_preparation_goes_on_and_ends_the_same(damaged, tmp_path, readers, action):
    whole = arrays_of(tmp_path / "whole", damaged)
    readers.set_trap(action, "d2.png")
    done = prepare_elsewhere(tmp_path / "data", damaged, 2)
    assert done.returncode == (-signal.SIGKILL if action == "kill the parent" else -signal.SIGINT), done.stderr
    place = tmp_path / "data" / "birds-8"
    assert not (place / "index.json").exists()
    before = len(readers.reads())
    assert 24 <= before < 52
    readers.disarm()
    assert_same(arrays_of(tmp_path / "data", damaged, read=readers.noted, processes=2), whole)
    assert len(readers.reads()) <= 52 - 24
    for file in ("train.npy", "test.npy", "unreadable.csv"):
        assert (place / file).read_bytes() == (tmp_path / "whole" / "birds-8" / file).read_bytes()
    assert not list(place.glob("*.partial"))


@pytest.fixture
def interrupted(images, tmp_path, readers):
    """A preparation that ended within the first class of the test split; 24 images of 39 are finished."""
    readers.set_trap("interrupt", "d2.png")
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "data", images, read=readers.noted)
    readers.disarm()
    assert len(readers.reads()) == 26
    return tmp_path / "data" / "birds-8"


def test_going_on_reads_only_what_is_left(interrupted, images, tmp_path, readers):
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))
    assert len(readers.reads()) == 15


@pytest.mark.parametrize(
    ("damage", "read_again"),
    [
        ("an image has changed", 4),
        ("an image is touched", 4),
        ("an image is gone", 24),
        ("an image is new", 16),
        ("a written pixel has changed", 4),
        ("the array is cut short", 8),
        ("the array is gone", 24),
        ("the journal is cut short", 4),
        ("the journal has foreign lines", 0),
        ("the journal is gone", 24),
        ("the journal is of another recipe", 24),
    ],
)
def test_nothing_wrong_is_kept(interrupted, images, tmp_path, readers, damage, read_again):
    log, array = interrupted / journal.NAME, interrupted / "train.npy.partial"
    image = images / "train" / "a" / "a5.png"
    match damage:
        case "an image has changed":
            image.write_bytes(encoded(999))
        case "an image is touched":
            os.utime(image)
        case "an image is gone":
            (images / "train" / "a" / "a0.png").unlink()
        case "an image is new":
            (images / "train" / "b" / "b1x.png").write_bytes(encoded(999))
        case "a written pixel has changed":
            content = bytearray(array.read_bytes())
            content[-1] ^= 1
            array.write_bytes(content)
        case "the array is cut short":
            array.write_bytes(array.read_bytes()[: -5 * SIZE * SIZE * 3])
        case "the array is gone":
            array.unlink()
        case "the journal is cut short":
            log.write_bytes(log.read_bytes()[:-30])
        case "the journal has foreign lines":
            log.write_text(log.read_text() + '[1]\n{"split": "train"}\n\x00\x00\n{"files": []}\n7\n')
        case "the journal is gone":
            log.unlink()
        case "the journal is of another recipe":
            log.write_text("x" + log.read_text())
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))
    unfinished = 15 - (damage == "an image is gone") + (damage == "an image is new")
    assert len(readers.reads()) == unfinished + read_again


def test_another_image_size_is_another_dataset(interrupted, images, tmp_path, readers):
    found = arrays_of(tmp_path / "data", images, read=readers.noted, image_size=6)
    assert found["train"].shape == (24, 6, 6, 3)
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))


@pytest.mark.parametrize("moment", ["leave_out", "remarks", "_write_report"])
def test_interrupted_while_images_are_left_out(damaged, tmp_path, monkeypatch, moment):
    from tcnaps.datasets import filling

    whole = arrays_of(tmp_path / "whole", damaged)
    with monkeypatch.context() as patch:
        original = getattr(filling, moment)

        def interrupt(*arguments):
            original(*arguments)
            raise KeyboardInterrupt

        patch.setattr(filling, moment, interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path / "data", damaged)
    assert_same(arrays_of(tmp_path / "data", damaged), whole)


# Workers


@pytest.mark.parametrize("processes", [2, 3])
def test_a_worker_that_dies_is_an_error_that_names_the_image(images, tmp_path, readers, processes):
    readers.set_trap("kill this process", "c4.png")
    message = r"killed by signal 9 \(Killed\), as the system does when memory runs out on .*/train/c/c4.png. Repair"
    with pytest.raises(DatasetError, match=message):
        prepare(tmp_path / "data", images, read=readers.noted, processes=processes)
    readers.disarm()
    readers.reads()
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted), expected(images))
    assert len(readers.reads()) < 39


def test_a_mistake_in_a_reader_is_an_error_that_names_the_image(images, tmp_path, readers):
    readers.set_trap("stumble", "c4.png")
    with pytest.raises(DatasetError, match="(?s)status 1 on .*/train/c/c4.png.*RuntimeError: a mistake in the reader"):
        prepare(tmp_path / "data", images, read=readers.noted, processes=2)
    with pytest.raises(RuntimeError, match="a mistake") as raised:
        prepare(tmp_path / "data", images, read=readers.noted, processes=1)
    assert "c4.png" in raised.value.__notes__[0]


def test_what_a_library_prints_disturbs_nothing(images, tmp_path, readers):
    readers.set_trap("print", "a3.png")
    assert_same(arrays_of(tmp_path / "data", images, read=readers.noted, processes=2), expected(images))


def test_a_worker_that_does_not_start_is_an_error(images, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(DatasetError, match="failed with status 1 before its first image"):
        prepare(tmp_path / "data", images, processes=2)


def test_a_module_of_the_working_folder_does_not_stand_in_for_another(images, tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise RuntimeError('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    assert_same(arrays_of(tmp_path / "data", images, processes=2), expected(images))


def test_an_orphan_writes_nothing(tmp_path):
    file = tmp_path / "a.npy"
    file.write_bytes(bytes(10))
    with pytest.raises(SystemExit, match="is gone"):
        decoding_jobs._write(str(file), memoryview(b"x"), 0, parent=os.getpid())
    assert file.read_bytes() == bytes(10)


def test_the_fast_dct_without_its_package_is_an_error_at_once(images, tmp_path, monkeypatch, readers):
    monkeypatch.setattr("tcnaps.datasets.decoding.simplejpeg", None)
    with pytest.raises(ImportError, match="tcnaps\\[records\\]"):
        prepare(tmp_path / "data", images, read=readers.noted, decoding=settings.Decoding(jpeg_dct="fast"))
    assert readers.reads() == []


def test_few_images_take_few_processes(images):
    files = dataset_of(images, processes=None)
    assert files.n_processes(files.scan()) == 1
    assert dataset_of(images, processes=7).n_processes(files.scan()) == 7


# A full disk


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_that_says_how_much_room_is_needed(images, tmp_path, monkeypatch, kind):
    def full(*arguments):
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr(os, "posix_fallocate", full)
    message = r"'birds' takes 7.74e-06 GB in .*birds-8, where .* GB are free \(.*data_folder"
    with pytest.raises(DatasetError, match=message):
        prepare(tmp_path / "data", images)
    assert [file.name for file in (tmp_path / "data" / "birds-8").iterdir()] == [".lock"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_disk_that_fills_up_while_images_are_written(images, tmp_path, processes):
    """By a limit on the size of files, which writing beyond it runs into; room is taken in vain."""
    script = (
        SCRIPT.replace("import sys\n", "import os, resource, sys\n")
        .replace(
            "listing_scan.IMAGES",
            "del os.posix_fallocate\nresource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
            "from tcnaps.datasets import array_files\narray_files.file_size = lambda shape: 0\nlisting_scan.IMAGES",
        )
        .replace("file_readers.noted", "test_files.read_path")
    )
    command = [sys.executable, "-c", script.format(tests=str(TESTS)), tmp_path / "data", images, str(processes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "DatasetError: Dataset 'birds' takes" in done.stderr, done.stderr
    assert "File too large" in done.stderr
    assert [file.name for file in (tmp_path / "data" / "birds-8").iterdir()] == [".lock"]


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
    assert state(made, tmp_path / "data" / "birds-8")[0] is not None


def test_a_moved_folder_costs_no_decoding(images, tmp_path, readers):
    prepare(tmp_path / "data", images, read=readers.noted)
    readers.reads()
    images.rename(tmp_path / "moved")
    prepare(tmp_path / "data", tmp_path / "moved", read=readers.noted)
    assert readers.reads() == []


def test_another_reader_looks_again_but_decodes_only_if_it_finds_something_else(images, tmp_path, readers):
    def with_reader(listing):
        files = dataset_of(images, read=readers.noted, listing=listing)
        return source.ensure_prepared(preparation(Files(**{**vars(files), "reader": "reader 2"})), tmp_path / "data")

    def fewer():
        splits = list_images(images, read=readers.noted).splits
        return Listing({"test": splits["test"]}, read=readers.noted)

    prepare(tmp_path / "data", images, read=readers.noted)
    readers.reads()
    with_reader(lambda: list_images(images, read=readers.noted))
    assert readers.reads() == []
    os.utime(images / "train" / "a")
    assert list(with_reader(fewer)["splits"]) == ["test"]
    assert not (tmp_path / "data" / "birds-8" / "train.npy").exists()


def test_prepared_arrays_are_used_without_the_originals(images, tmp_path, readers):
    whole = arrays_of(tmp_path / "data", images)
    shutil.move(tmp_path / "data", tmp_path / "other-machine")
    shutil.rmtree(images)
    assert_same(arrays_of(tmp_path / "other-machine", images, read=readers.noted), whole)
    assert_same(arrays_of(tmp_path / "other-machine", Path("/nowhere"), read=readers.noted), whole)
    assert readers.reads() == []


def test_without_originals_and_arrays_the_error_says_what_is_missing_and_how_to_get_it(images, tmp_path):
    message = "(?s)'birds': there is no /nowhere. It is on the shelf.*Nor is it prepared in .*: nothing is there"
    with pytest.raises(MissingFiles, match=message):
        prepare(tmp_path / "data", Path("/nowhere"))
    assert not (tmp_path / "data").exists()
    prepare(tmp_path / "data", images)
    with pytest.raises(MissingFiles, match=r"birds-8 was made by another recipe \(splits None, now 'a.csv'\)"):
        prepare(tmp_path / "data", Path("/nowhere"), splits="a.csv")
    (tmp_path / "data" / "birds-8" / "train.npy").unlink()
    with pytest.raises(MissingFiles, match="train.npy is missing or cut short"):
        prepare(tmp_path / "data", Path("/nowhere"))


def test_nothing_else_in_the_folder_is_touched(images, tmp_path):
    place = tmp_path / "data" / "birds-8"
    place.mkdir(parents=True)
    (place / "mine.npy").write_bytes(b"mine")
    (place / "index.json").write_text("{}")
    assert_same(arrays_of(tmp_path / "data", images), expected(images))
    assert (place / "mine.npy").read_bytes() == b"mine"


def test_an_index_without_a_stamp_is_looked_over(images, tmp_path, readers):
    index = prepare(tmp_path / "data", images, read=readers.noted)
    assert len(readers.reads()) == 39
    del index["stamp"]
    (tmp_path / "data" / "birds-8" / "index.json").write_text(json.dumps(index))
    prepare(tmp_path / "data", images, read=readers.noted)
    assert readers.reads() == []


def test_a_list_that_goes_missing_is_named(images, tmp_path):
    def stamp():
        return {"list": os.stat(tmp_path / "splits.csv").st_size}

    files = dataset_of(images)
    files = Files(**{**vars(files), "source": FileSource(stamp, files.source.listing, (images,), "Help.")})
    with pytest.raises(MissingFiles, match="there is no .*splits.csv. Help."):
        source.ensure_prepared(preparation(files), tmp_path / "data")


def test_changes_while_it_is_prepared_are_noticed_afterwards(images, tmp_path):
    files = dataset_of(images)

    def listing():
        found = list_images(images)
        (images / "train" / "a" / "late.png").write_bytes(encoded(999))
        return found

    hasty = Files(**{**vars(files), "source": FileSource(lambda: times(images), listing, (images,), "")})
    source.ensure_prepared(preparation(hasty), tmp_path / "data")
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
    found = arrays_of(tmp_path / "data", test, listing=lambda: Listing({"test": part}), image_size=32, processes=2)
    assert len(found["test"]) == {"cifar10": 2000, "omniglot": 2120}[name]
    for pixels, file in zip(found["test"], sum(files, [])):
        plain = Image.open(file).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(pixels, plain)

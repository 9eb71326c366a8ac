"""torchvision's datasets, written here in their own formats but tiny: every image is found, in its class."""

import json
import pickle
import shutil
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torchvision
from PIL import Image
from record_files import names_by_class as listed
from scipy.io import savemat

from tcnaps.config import settings
from tcnaps.data import DatasetError, preparation
from tcnaps.data.listing import ImageFile
from tcnaps.data.preparing import ensure_prepared
from tcnaps.data.readers import mscoco
from tcnaps.data.readers.torchvision_sets import open_torchvision, read_box


def section(folder, name, **keys):
    return settings.Torchvision(source="torchvision", domain="out", path=str(folder / "data"), name=name, **keys)


def opened(tmp_path, name, **keys):
    return open_torchvision("it", section(tmp_path, name, **keys))


def prepared(tmp_path, name, size, **keys):
    made = preparation("it", section(tmp_path, name, **keys), size)
    return ensure_prepared(made, tmp_path / "prepared").splits["test"]


def save(path, seed=0, size=(12, 10), mode="RGB"):
    """An image of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def write_aircraft(folder):
    data = folder / "data" / "fgvc-aircraft-2013b" / "data"
    variants = {"0000002": "F-16A/B", "0000001": "F-16A/B", "0000003": "Cessna 172", "0000004": "F-16A/B"}
    for name in variants:
        save(data / "images" / f"{name}.jpg", int(name), size=(40, 30))
    lines = [f"{name} {variant}\n" for name, variant in variants.items()]
    (data / "images_variant_trainval.txt").write_text("".join(lines[:2]))
    (data / "images_variant_test.txt").write_text("".join(lines[2:]))
    (data / "images_box.txt").write_text("".join(f"{name} 1 2 {20 + k} 28\n" for k, name in enumerate(variants)))


def write_coco(folder, annotations=((7, 1, [1, 1, 5, 5]),)):
    """Annotations are (image's id, category's id, box); images 7 and 9 are of 40 x 30 and 20 x 60 pixels."""
    names = {1: "person", 44: "bottle", 90: "toothbrush"}
    images = []
    for number, size in ((7, (40, 30)), (9, (20, 60))):
        images.append({"id": number, "file_name": f"{number:012d}.jpg", "width": size[0], "height": size[1]})
        save(folder / "data" / "train2017" / images[-1]["file_name"], number, size)
    content = {
        "categories": [{"id": number, "name": name} for number, name in names.items()],
        "images": images,
        "annotations": [{"image_id": i, "category_id": c, "bbox": b, "segmentation": {}} for i, c, b in annotations],
    }
    (folder / "data" / "annotations").mkdir()
    (folder / "data" / mscoco.ANNOTATIONS).write_text(json.dumps(content))


def write_flowers(folder, labels=(3, 4)):
    folder = folder / "data" / "flowers-102"
    for number in range(1, len(labels) + 1):
        save(folder / "jpg" / f"image_{number:05d}.jpg", number)
    savemat(folder / "imagelabels.mat", {"labels": np.array([labels], dtype=np.uint8)})


def write_signs(folder):
    folder = folder / "data" / "gtsrb"
    for name in ("00014/00001_00002.ppm", "00014/00000_00010.ppm", "00042/00000_00000.ppm"):
        save(folder / "GTSRB" / "Training" / name)
    (folder / "GTSRB" / "Training" / "00014" / "GT-00014.csv").write_text("not an image")
    for k in range(2):
        save(folder / "GTSRB" / "Final_Test" / "Images" / f"0000{k}.ppm")
    (folder / "GT-final_test.csv").write_text("Filename;Width;ClassId\n00000.ppm;5;42\n00001.ppm;5;0\n")


def test_omniglot_keeps_its_own_split_and_has_alphabets(tmp_path):
    names = {"train": ["Greek/character02", "Greek/character10", "Latin/character01"], "test": ["Tengwar/character01"]}
    for split, part in (("train", "background"), ("test", "evaluation")):
        for name in names[split]:
            save(tmp_path / "data" / "omniglot-py" / f"images_{part}" / name / "00_00.png", 1, mode="1")
    listing = opened(tmp_path, "Omniglot").listing()
    assert listed(listing) == {split: {name: ["00_00.png"] for name in found} for split, found in names.items()}
    assert list(listing.superclasses.values()) == ["Greek", "Greek", "Latin", "Tengwar"]
    image = listing.splits["test"]["Tengwar/character01"][0]
    stored = np.asarray(Image.open(image.path).convert("RGB"))
    assert np.array_equal(pickle.loads(pickle.dumps(listing.read))(image), 255 - stored)  # white ink on black


def test_aircraft_are_cut_out_by_their_boxes(tmp_path):
    write_aircraft(tmp_path)
    listing = opened(tmp_path, "FGVCAircraft").listing()
    assert listed(listing) == {
        "test": {"Cessna 172": ["0000003.jpg"], "F-16A/B": ["0000001.jpg", "0000002.jpg", "0000004.jpg"]}
    }
    images = listing.splits["test"]["F-16A/B"]
    assert [image.position for image in images] == [(1, 2, 21, 28), (1, 2, 20, 28), (1, 2, 23, 28)]
    assert np.array_equal(listing.read(images[2]), np.asarray(Image.open(images[2].path))[2:28, 1:23])


def test_flowers_are_named_as_in_meta_dataset(tmp_path, reference):
    write_flowers(tmp_path, [77, 1, 102, 1])
    flowers = listed(opened(tmp_path, "Flowers102").listing())["test"]
    assert list(flowers.values()) == [["image_00002.jpg", "image_00004.jpg"], ["image_00001.jpg"], ["image_00003.jpg"]]
    specification = json.loads((reference / "dataset_specs" / "vgg_flower_dataset_spec.json").read_text())
    assert flowers.keys() < set(specification["class_names"].values())


def test_signs_of_both_sets_are_put_together(tmp_path):
    write_signs(tmp_path)
    signs = {
        "00000": ["00001.ppm"],
        "00014": ["00000_00010.ppm", "00001_00002.ppm"],
        "00042": ["00000.ppm", "00000_00000.ppm"],
    }
    assert listed(opened(tmp_path, "GTSRB").listing()) == {"test": signs}
    (tmp_path / "signs.json").write_text('{"train": ["00014"], "test": ["00042"]}')
    split = opened(tmp_path, "GTSRB", splits=str(tmp_path / "signs.json")).listing()
    assert listed(split) == {"train": {"00014": signs["00014"]}, "test": {"00042": signs["00042"]}}
    assert split.notes[0].endswith("does not list them: '00000'")


BOXES = "fgvc-aircraft-2013b/data/images_box.txt"


@pytest.mark.parametrize(
    ("name", "write", "file", "content"),
    [
        ("FGVCAircraft", write_aircraft, "fgvc-aircraft-2013b/data/images_box.txt", b"1 1 2 3 4\n"),
        ("Flowers102", write_flowers, "flowers-102/imagelabels.mat", b"no MATLAB file, but text"),
        ("Flowers102", write_flowers, "flowers-102/jpg/image_00002.jpg", None),
        ("CocoDetection", write_coco, mscoco.ANNOTATIONS, b"{}"),
    ],
)
def test_wrong_lists_and_lost_images_are_refused(tmp_path, name, write, file, content):
    write(tmp_path)
    (tmp_path / "data" / file).unlink()
    if content is not None:
        (tmp_path / "data" / file).write_bytes(content)
    with pytest.raises(DatasetError, match=name if content else file):
        opened(tmp_path, name).listing()


def naive_box(box, width, height):
    """A number at a time, after MSCOCOConverter.get_image_crop_and_class_id."""
    x, y, w, h = box
    x, y, w, h = x - 0.5 * w * (1.2 - 1.0), y - 0.5 * h * (1.2 - 1.0), w * 1.2, h * 1.2
    return [
        max(int(round(x - 0.5)), 0),
        max(int(round(y - 0.5)), 0),
        min(int(round(x + w - 0.5)) + 1, width),
        min(int(round(y + h - 0.5)) + 1, height),
    ]


def test_boxes_are_enlarged_as_by_meta_dataset():
    generator = np.random.default_rng(0)
    sizes = generator.integers(20, 640, (2000, 2))
    corners = generator.random((2000, 2, 2)) * sizes[:, None]
    boxes = np.concatenate([corners.min(axis=1), np.ptp(corners, axis=1)], axis=1)
    boxes[::4] = boxes[::4].round()  # whole numbers, for halves to round
    expected = [naive_box(box, *size) for box, size in zip(boxes.tolist(), sizes.tolist())]
    assert mscoco.enlarged(boxes, sizes).tolist() == expected


def test_objects_are_cut_out_by_their_boxes(tmp_path):
    whole_9 = [0, 0, 20, 60]
    write_coco(tmp_path, [(7, 44, [5, 5, 10, 10]), (9, 1, whole_9), (7, 1, [38.5, 28.5, 1, 1]), (9, 44, whole_9)])
    listing = opened(tmp_path, "CocoDetection").listing()
    assert listed(listing) == {
        "test": {"bottle": ["000000000007.jpg", "000000000009.jpg"], "person": ["000000000009.jpg", "000000000007.jpg"]}
    }  # without the toothbrush, of which there is none
    bottles, people = listing.splits["test"].values()
    left, top, right, bottom = bottles[0].position
    assert [left, top, right, bottom] == naive_box([5, 5, 10, 10], 40, 30)
    assert people[0].position == bottles[1].position == (0, 0, 20, 60)
    whole = np.asarray(Image.open(bottles[0].path))
    assert np.array_equal(listing.read(bottles[0]), whole[top:bottom, left:right])
    assert listing.read(people[1]).size == (2, 2)


@pytest.mark.parametrize("box", [(3, 3, 3, 5), (0, 0, 13, 5), (-1, 0, 3, 5)])
def test_a_box_outside_its_image_is_refused(tmp_path, box):
    save(tmp_path / "a.jpg", size=(12, 10))
    with pytest.raises(DatasetError):
        read_box(ImageFile(str(tmp_path / "a.jpg"), box))


def test_mnist_is_prepared_as_in_the_released_code(tmp_path):
    folder = tmp_path / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    labels = np.array([*range(10), *reversed(range(10))], dtype=np.uint8)
    for part in ("t10k", "train"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 20, 28, 28) + pixels.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 20) + labels.tobytes())
    source = prepared(tmp_path, "MNIST", 84)
    assert source.class_names[:3] == ("0 - zero", "1 - one", "2 - two") and source.class_sizes.tolist() == [2] * 10
    for image, drawn in zip(source.images, pixels[np.argsort(labels, kind="stable")]):
        assert np.array_equal(image, Image.fromarray(drawn).convert("RGB").resize((84, 84), Image.Resampling.LANCZOS))


@pytest.fixture
def fake(monkeypatch):
    """Stands for torchvision's DTD: writes two images instead of fetching them."""
    state = SimpleNamespace(calls=0, fails=None)

    def kind(root, split, download):
        assert (split, download) == ("train", True)
        state.calls += 1
        if state.fails:
            raise state.fails
        for name in ("woven/a.jpg", "banded/b.jpg"):
            save(root / "dtd" / "dtd" / "images" / name)

    monkeypatch.setattr(torchvision.datasets, "DTD", kind)
    return state


def test_a_dataset_is_downloaded_before_it_is_prepared_and_only_if_asked_for(tmp_path, fake):
    with pytest.raises(DatasetError, match="dtd/images.*download"):
        prepared(tmp_path, "DTD", 4)
    assert not fake.calls
    for _ in range(2):
        assert prepared(tmp_path, "DTD", 4, download=True).class_names == ("banded", "woven")
    assert fake.calls == 1
    shutil.rmtree(tmp_path / "data" / "dtd")
    fake.fails = OSError("Name or service not known")
    assert prepared(tmp_path, "DTD", 4, download=True).class_sizes.tolist() == [1, 1]  # what is prepared needs none
    with pytest.raises(DatasetError, match="DTD"):
        prepared(tmp_path, "DTD", 6, download=True)

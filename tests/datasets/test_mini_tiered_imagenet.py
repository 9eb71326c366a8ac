"""mini-ImageNet, tiered-ImageNet and FETI: every layout gives the same classes, and nothing to be tested on leaks."""

import random
from pathlib import Path

import pytest
from record_files import names_by_class, write

from tcnaps.config.settings import FETI, MiniImageNet, TieredImageNet
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.readers.mini_tiered_imagenet import open_feti, open_mini_imagenet, open_tiered_imagenet

WNIDS = {"train": ("n01532829", "n01558993", "n01704323"), "val": ("n01855672",), "test": ("n01930112", "n01981276")}
ALL = (*WNIDS["train"], *WNIDS["val"], *WNIDS["test"])
# ImageNet's own numbers are neither dense nor in plain order of their names
NUMBERS = (3, 6, 26, 27, 28, 105, 1234, 20000)


def write_lists(folder, names, header="filename,label"):
    """Lists with one line per image; `names` returns the images of a class."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, wnids in WNIDS.items():
        lines = [f"{file},{wnid}" for wnid in wnids for file in names(wnid)]
        (folder / f"{split}.csv").write_text("\n".join([header, *lines]) + "\n")


def ravi(wnid, positions=(5, 2, 8)):
    return [f"{wnid}{position:08}.jpg" for position in positions]


def imagenet(folder, wnids=ALL):
    return write(folder, *(f"{wnid}/{wnid}_{number}.JPEG" for wnid in wnids for number in NUMBERS))


def mini(folder):
    dataset = MiniImageNet(source="mini-imagenet", domain="in", path=folder.name)
    return open_mini_imagenet("mini", dataset, folder.parent)


def tiered(folder, lists=None):
    dataset = TieredImageNet(source="tiered-imagenet", domain="in", path=str(folder), class_lists=lists)
    return open_tiered_imagenet("tiered", dataset, folder.parent)


def feti(folder, *lists):
    dataset = FETI(source="feti", domain="in", path=str(folder), test_classes=lists)
    return open_feti("feti", dataset, folder.parent)


def files(source):
    return names_by_class(source.listing())


def expected(names):
    return {
        "valid" if split == "val" else split: {w: sorted(names(w)) for w in wnids} for split, wnids in WNIDS.items()
    }


# mini-ImageNet


@pytest.mark.parametrize("place", ["images/{file}", "images/{wnid}/{file}"])
def test_mini_lists_and_their_images(tmp_path, place):
    root = tmp_path / "mini"
    write_lists(root, ravi)
    for wnid in ALL:  # and one that isn't listed
        write(root, *(place.format(file=file, wnid=wnid) for file in [*ravi(wnid), f"{wnid}00000001.jpg"]))
    assert files(mini(root)) == expected(ravi)
    for classes in mini(root).listing().splits.values():
        assert all(Path(image.path).is_file() for images in classes.values() for image in images)


def test_mini_lists_of_classes_alone_are_an_error(tmp_path):
    root = write(tmp_path / "mini", "images/1.jpg")
    (root / "train.csv").write_text("class\nn01532829\n")
    with pytest.raises(DatasetError, match="lists in .* name no images"):
        mini(root).listing()


# tiered-ImageNet


def class_lists(folder, header=""):
    folder.mkdir()
    for split, wnids in WNIDS.items():
        (folder / f"{split}.csv").write_text(header + "".join(f"{wnid},n00020090\n" for wnid in wnids))
    return str(folder)


@pytest.mark.parametrize("header", ["", "wnid,category\n"])
@pytest.mark.parametrize("place", ["", "train"])
def test_tiered_from_imagenet_and_class_lists(tmp_path, header, place):
    imagenet(tmp_path / "imagenet" / place, [*ALL, "n15075141"])
    write(tmp_path / "imagenet", "val/ILSVRC2012_val_00000001.JPEG", "readme.txt")
    found = tiered(tmp_path / "imagenet", class_lists(tmp_path / "lists", header))
    everything = [f"_{number}.JPEG" for number in NUMBERS]
    assert files(found) == {
        "valid" if split == "val" else split: {wnid: [wnid + name for name in everything] for wnid in wnids}
        for split, wnids in WNIDS.items()
    }


@pytest.mark.parametrize("open_source", [mini, tiered])
def test_class_folders_per_split(tmp_path, open_source):
    for split, wnids in WNIDS.items():
        imagenet(tmp_path / "it" / split, wnids)
    found = {split: tuple(classes) for split, classes in files(open_source(tmp_path / "it")).items()}
    assert found == {"train": WNIDS["train"], "valid": WNIDS["val"], "test": WNIDS["test"]}


# FETI


def write_list(file, wnids, category=True):
    file.write_text(
        "".join(f"{wnid},n00020090\n" for wnid in wnids)
        if category
        else "filename,label\n" + "".join(f"{wnid}{k:08}.jpg,{wnid}\n" for wnid in wnids for k in (1, 2))
    )
    return str(file)


@pytest.mark.parametrize("place, overlap", [("", 4), ("train", 5)])
def test_feti_leaves_out_the_test_classes_of_both(tmp_path, place, overlap):
    names = [f"n{k:08}" for k in range(1000)]  # the lists as published: 20 and 160 classes, 4 of which are in both
    random.Random(0).shuffle(names)
    mini_test, tiered_test = names[:20], names[20 - overlap : 180 - overlap]
    write(tmp_path / "imagenet" / place, *(f"{name}/{name}_1.JPEG" for name in names))
    found = feti(
        tmp_path / "imagenet",
        write_list(tmp_path / "mini.csv", mini_test, category=False),
        write_list(tmp_path / "tiered.csv", tiered_test),
    )
    splits = found.listing().splits
    assert list(splits) == ["train"] and len(splits["train"]) == 820 + overlap
    assert set(splits["train"]) == set(names) - set(mini_test) - set(tiered_test)
    assert found.needs == (tmp_path / "imagenet", tmp_path / "mini.csv", tmp_path / "tiered.csv")


def test_feti_with_nothing_left_is_an_error(tmp_path):
    imagenet(tmp_path / "imagenet", WNIDS["test"])
    with pytest.raises(DatasetError, match="2 of the 2 classes of .* are test classes"):
        feti(tmp_path / "imagenet", write_list(tmp_path / "a.csv", WNIDS["test"])).listing()


# All three


def test_a_folder_of_no_known_layout_is_an_error_with_help(tmp_path):
    write(tmp_path, "n01440764.tar")  # an archive that is still to be unpacked
    for source in (mini(tmp_path), tiered(tmp_path), tiered(tmp_path, str(tmp_path)), feti(tmp_path, "a.csv")):
        with pytest.raises(DatasetError, match="docs/data.md says more"):
            source.listing()
        assert source.needs[0] == tmp_path

"""mini-ImageNet, tiered-ImageNet and FETI: every layout gives the same classes, and nothing to be tested on leaks."""

import random

import pytest
from record_files import names_by_class, write

from tcnaps.config.settings import FETI, MiniImageNet, TieredImageNet
from tcnaps.data.image_source import DatasetError
from tcnaps.data.readers.mini_tiered_imagenet import open_feti, open_mini_imagenet, open_tiered_imagenet

WNIDS = {"train": ("n01532829", "n01558993", "n01704323"), "val": ("n01855672",), "test": ("n01930112", "n01981276")}
ALL = (*WNIDS["train"], *WNIDS["val"], *WNIDS["test"])


def mini(folder):
    return open_mini_imagenet("mini", MiniImageNet(source="mini-imagenet", domain="in", path=str(folder)))


def tiered(folder, lists=None):
    section = TieredImageNet(source="tiered-imagenet", domain="in", path=str(folder), class_lists=lists)
    return open_tiered_imagenet("tiered", section)


def feti(folder, *lists):
    return open_feti("feti", FETI(source="feti", domain="in", path=str(folder), test_classes=tuple(map(str, lists))))


def names(wnid):
    """ImageNet's own numbers are neither dense nor in plain order of their names."""
    return [f"{wnid}_{number}.JPEG" for number in (3, 6, 26, 105, 1234, 20000)]


def imagenet(folder, wnids=ALL):
    return write(folder, *(f"{wnid}/{name}" for wnid in wnids for name in names(wnid)))


def write_lists(folder, line, header=""):
    folder.mkdir(exist_ok=True)
    for split, wnids in WNIDS.items():
        (folder / f"{split}.csv").write_text(header + "".join(line(wnid) for wnid in wnids))
    return folder


EXPECTED = {"valid" if s == "val" else s: {wnid: names(wnid) for wnid in wnids} for s, wnids in WNIDS.items()}


@pytest.mark.parametrize("place", ["images/{file}", "images/{wnid}/{file}"])
def test_mini_lists_and_their_images(tmp_path, place):
    write_lists(tmp_path, lambda wnid: "".join(f"{name},{wnid}\n" for name in names(wnid)), "filename,label\n")
    for wnid in ALL:  # and one that isn't listed
        write(tmp_path, *(place.format(file=file, wnid=wnid) for file in [*names(wnid), f"{wnid}_1.JPEG"]))
    assert names_by_class(mini(tmp_path).listing()) == EXPECTED


@pytest.mark.parametrize("header", ["", "wnid,category\n"])
@pytest.mark.parametrize("place", ["", "train"])
def test_tiered_from_imagenet_and_class_lists(tmp_path, header, place):
    imagenet(tmp_path / "imagenet" / place, [*ALL, "n15075141"])
    write(tmp_path / "imagenet", *(["val/ILSVRC2012_val_00000001.JPEG"] if place else []), "readme.txt")
    lists = write_lists(tmp_path / "lists", lambda wnid: f"{wnid},n00020090\n", header)
    assert names_by_class(tiered(tmp_path / "imagenet", str(lists)).listing()) == EXPECTED


@pytest.mark.parametrize("open_source", [mini, tiered])
def test_class_folders_per_split(tmp_path, open_source):
    for split, wnids in WNIDS.items():
        imagenet(tmp_path / split, wnids)
    assert names_by_class(open_source(tmp_path).listing()) == EXPECTED


def test_feti_leaves_out_the_test_classes_of_both(tmp_path):
    place, overlap = "train", 4
    wnids = [f"n{k:08}" for k in range(1000)]  # the lists as published: 20 and 160 classes, 4 of which are in both
    random.Random(0).shuffle(wnids)
    of_mini, of_tiered = wnids[:20], wnids[20 - overlap : 180 - overlap]
    write(tmp_path / "imagenet" / place, *(f"{wnid}/{wnid}_1.JPEG" for wnid in wnids))
    (write(tmp_path, "mini/x") / "mini/test.csv").write_text(
        "filename,label\n" + "".join(f"{wnid}{k:08}.jpg,{wnid}\n" for wnid in of_mini for k in (1, 2))
    )
    (write(tmp_path, "tiered/x") / "tiered/test.csv").write_text("".join(f"{wnid},n00020090\n" for wnid in of_tiered))
    source = feti(tmp_path / "imagenet", tmp_path / "mini/test.csv", tmp_path / "tiered/test.csv")
    splits = source.listing().splits
    assert list(splits) == ["train"] and len(splits["train"]) == 820 + overlap
    assert set(splits["train"]) == set(wnids) - set(of_mini) - set(of_tiered)
    assert source.needs == (tmp_path / "imagenet", tmp_path / "mini/test.csv", tmp_path / "tiered/test.csv")


@pytest.mark.parametrize("place", ["test", "train"])
def test_feti_with_nothing_left_or_nothing_left_out_is_an_error(tmp_path, place):
    imagenet(tmp_path / "imagenet", WNIDS[place])
    lists = write_lists(tmp_path / "lists", lambda wnid: f"{wnid},n00020090\n")
    with pytest.raises(DatasetError, match="feti.*test_classes"):
        feti(tmp_path / "imagenet", lists / "test.csv").listing()

"""Files are written whole or not at all; what killed processes left is removed."""

import os

import pytest

from tcnaps.config.storage import StorageError, digest_of, file_digest, replacing, write_text


def test_a_failed_write_leaves_what_was_there(tmp_path):
    file = tmp_path / "a" / "table.csv"
    write_text(file, "before")
    with pytest.raises(KeyError), replacing(file) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert file.read_text() == "before" and os.listdir(file.parent) == ["table.csv"]


def test_writers_of_one_file_do_not_meet_and_what_a_killed_one_left_is_removed(tmp_path):
    file, left = tmp_path / "[1]**.csv", tmp_path / ".partial.0.[1]**.csv"
    left.touch()
    os.utime(left, (0, 0))
    with replacing(file) as temporary:
        temporary.write_text("half")
        write_text(file, "another's")
        assert sorted(os.listdir(tmp_path)) == [temporary.name, file.name] and temporary.read_text() == "half"
    assert os.listdir(tmp_path) == [file.name] and file.read_text() == "half"


def test_a_disk_without_room_is_named(tmp_path):
    with pytest.raises(StorageError, match="table.csv") as error:
        with replacing(tmp_path / "table.csv"):
            raise OSError(28, "No space left on device")
    assert error.value.errno == 28 and os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/table.csv"):
        write_text(tmp_path / "file" / "table.csv", "x")


def test_digests_tell_contents_apart(tmp_path):
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1}) != digest_of({"a": 1, "b": [3]})
    write_text(tmp_path / "a", "x")
    assert file_digest(tmp_path / "a") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

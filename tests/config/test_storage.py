"""Files are written whole or not at all; what killed processes left is removed."""

import os
import subprocess
import sys

import pytest

from tcnaps.config.storage import (
    HOST,
    StorageError,
    append_text,
    digest_of,
    file_digest,
    remove_leftovers,
    replacing,
    write_text,
)


def test_a_failed_write_leaves_what_was_there(tmp_path):
    file = tmp_path / "a" / "table.csv"
    write_text(file, "before")
    with pytest.raises(KeyError), replacing(file) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert file.read_text() == "before" and os.listdir(file.parent) == ["table.csv"]


def test_leftovers_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    pid = ended.stdout.strip()
    dead, below = f".{pid}@{HOST}.table.csv", f"a/.{pid}@{HOST}.other.csv"
    living, elsewhere = f".{os.getppid()}@{HOST}.table.csv", f".{pid}@elsewhere-2.table.csv"
    (tmp_path / "a").mkdir()
    for name in (dead, below, living, elsewhere):
        (tmp_path / name).touch()
    write_text(tmp_path / "table.csv", "x")
    assert set(os.listdir(tmp_path)) == {"a", living, elsewhere, "table.csv"}
    remove_leftovers(tmp_path)
    assert not (tmp_path / below).exists() and (tmp_path / living).exists()


def test_a_disk_without_room_is_named(tmp_path):
    with pytest.raises(StorageError, match="table.csv") as error:
        with replacing(tmp_path / "table.csv"):
            raise OSError(28, "No space left on device")
    assert error.value.errno == 28 and os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/table.csv"):
        write_text(tmp_path / "file" / "table.csv", "x")
    with pytest.raises(StorageError, match="file/table.csv"):
        append_text(tmp_path / "file" / "table.csv", "x")


def test_digests_tell_contents_apart(tmp_path):
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1}) != digest_of({"a": 1, "b": [3]})
    write_text(tmp_path / "a", "x")
    assert file_digest(tmp_path / "a") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

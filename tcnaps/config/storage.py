"""Files on disk: written whole or not at all, and told apart by their digests."""

import contextlib
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tcnaps.config.errors import UserError

HOST = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())  # several machines may share a folder
LEFTOVER = re.compile(r"\.(\d+)@([A-Za-z0-9-]*)\..")
DAY = 86_400  # seconds after which a temporary file of another machine counts as left over


class StorageError(OSError, UserError):
    """A file could not be written; the message names it. What was there before is unchanged."""


@contextlib.contextmanager
def replacing(path: str | Path, before: Path | None = None) -> Iterator[Path]:
    """Gives a temporary file to write, which takes the place of `path` when the block ends without an error.

    Its content is on the disk before it gets its name, and what killed processes left of earlier attempts is removed.

    Args:
        before: the name that the file gets which is there already; default: it goes.

    Raises:
        StorageError: there is no room, or the folder can't be written to.
    """
    path = Path(path)
    temporary = path.with_name(f".{os.getpid()}@{HOST}.{path.name}")  # the same suffix, which many writers go by
    with naming(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            if before is not None and path.exists():
                os.replace(path, before)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns the system's errors in the block into a StorageError that names the file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = f"{error.strerror or error}. Make room or choose another folder, then run this again"
        raise StorageError(error.errno, f"{path} can't be written: {reason}") from error


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes left of a file, or of all files in and below a folder."""
    for file in path.rglob(".*@*") if path.is_dir() else path.parent.glob(f".*@*.{path.name}"):
        if owner := LEFTOVER.match(file.name):
            with contextlib.suppress(OSError):  # another process removes it just now
                if owner[2] != HOST:
                    abandoned = time.time() - file.stat().st_mtime > DAY
                else:
                    abandoned = not psutil.pid_exists(int(owner[1]))
                if abandoned:
                    file.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    """Adds to the end of a text file.

    Raises:
        StorageError: there is no room, or the file can't be written to.
    """
    with naming(path), open(path, "a", encoding="utf-8") as file:
        file.write(text)


def write_sealed(path: Path, content: bytes | memoryview, before: Path | None = None) -> None:
    """Writes bytes behind their SHA-256; see `replacing`."""
    with replacing(path, before) as temporary, open(temporary, "wb") as file:
        file.write(hashlib.sha256(content).hexdigest().encode() + b"\n")
        file.write(content)


def read_sealed(path: Path) -> bytes:
    """What `write_sealed` wrote.

    Raises:
        ValueError: something in the file has changed since.
    """
    digest, _, content = path.read_bytes().partition(b"\n")
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("it does not have the digest it was written with")
    return content


def digest_of(content: object) -> str:
    """SHA-256 of anything that JSON can hold, 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):  # some file systems can't
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

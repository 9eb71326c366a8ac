"""Files on disk: each is written whole or not at all. Digests tell their contents apart."""

import contextlib
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from tcnaps.config.errors import UserError

HOST = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())  # several machines may share a folder


class StorageError(OSError, UserError):
    """A file could not be written; the message names it. What was there before is unchanged."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary file to write. It takes the place of `path` when the block ends without an error.

    The content is on the disk before the file is renamed. A StorageError says why it can't be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{os.getpid()}@{HOST}.{path.name}")  # ends in the same suffix, which writers look at
    with naming(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns an OSError in the block into a StorageError that names the file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = f"{error.strerror or error}. Make room or choose another folder, then run this again"
        raise StorageError(error.errno, f"{path} can't be written: {reason}") from error


def remove_leftovers(path: Path) -> None:
    """Removes temporary files of this machine's killed processes: those of one file, or all below a folder."""
    files = path.rglob(f".*@{HOST}.*") if path.is_dir() else path.parent.glob(f".*@{HOST}.{path.name}")
    for file in files:
        process = file.name[1:].partition("@")[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            file.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    """Appends to a text file. Raises StorageError where that is impossible."""
    with naming(path), open(path, "a", encoding="utf-8") as file:
        file.write(text)


def digest_of(content: object) -> str:
    """SHA-256 of anything that JSON can hold, 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

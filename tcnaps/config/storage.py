"""Files on disk: written whole or not at all, and told apart by their digests."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from tcnaps.config.errors import UserError


class StorageError(OSError, UserError):
    """A file could not be written; the message names it. What was there before is unchanged."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Gives a temporary file to write, which takes the place of `path` when the block ends without an error.

    What killed processes left of earlier attempts is removed first.

    Raises:
        StorageError: there is no room, or the folder can't be written to.
    """
    path = Path(path)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")  # the same suffix, which many writers go by
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f".*.{path.name}"):
            owner = leftover.name.split(".")[1]
            if owner.isdigit() and not psutil.pid_exists(int(owner)):
                leftover.unlink(missing_ok=True)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        reason = f"{error.strerror or error}. Make room or choose another folder, then run this again"
        raise StorageError(error.errno, f"{path} can't be written: {reason}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def digest_of(content: object) -> str:
    """SHA-256 of anything that JSON can hold, 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

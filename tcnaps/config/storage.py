"""Files on disk: each is written whole or not at all. Digests tell their contents apart."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from tcnaps.config.errors import UserError


class StorageError(OSError, UserError):
    """A file could not be written; the message names it. What was there before is unchanged."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary file to write. It takes the place of `path` when the block ends without an error.

    The content is on the disk before the file is renamed. What a killed process leaves is removed a day later.
    """
    path = Path(path)
    temporary = path.with_name(f".partial.{os.urandom(4).hex()}.{path.name}")
    with naming(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
                for left in partial_files(path):
                    if left.stat().st_mtime < path.stat().st_mtime - 86_400:  # seconds
                        left.unlink()


def partial_files(path: Path) -> Iterator[Path]:
    """The temporary files of `replacing`; they end in the same suffix, which writers look at."""
    return path.parent.glob(f".partial.*.{escape(path.name)}")


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

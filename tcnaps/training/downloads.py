"""One file over HTTP, verified, and put in place whole or not at all; pooch does the work."""

import logging
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pooch

from tcnaps.config.errors import UserError
from tcnaps.config.storage import file_digest

TIMEOUT = 30.0  # seconds without an answer or a byte
RETRIES = 2


class DownloadError(UserError, RuntimeError):
    """A file could not be downloaded, or is not what it should be; the message names the address and the remedy."""


def download(url: str, path: str | Path, sha256: str | None = None) -> str:
    """Downloads one file unless it is there already.

    Args:
        url: http or https.
        path: where to put the file; its folder is made.
        sha256: 64 hexadecimal digits that the file must have, or None if they are unknown.

    Returns:
        The file's SHA-256.

    Raises:
        DownloadError: the address is wrong or can't be reached, the checksum differs, or another file stands at `path`:
            it is never overwritten.
    """
    path, sha256 = Path(path), sha256 and sha256.lower()
    if sha256 and (len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef")):
        raise DownloadError(f"'{sha256}' is not a SHA-256: give 64 hexadecimal digits.")
    try:
        if not path.exists():
            _fetch(url, path, sha256)
        elif sha256 is None:
            raise DownloadError(
                f"{path} is there already, and no checksum is known to compare it with. Delete it to download {url} "
                "again, or give the SHA-256 it must have."
            )
        found = file_digest(path)
    except (OSError, ValueError) as error:  # of the network, the address, the checksum or the disk
        raise DownloadError(f"{url} can't be downloaded to {path}: {error}. Check both, then try again.") from error
    if sha256 not in (None, found):
        raise DownloadError(
            f"{path} is another file than {url}: its SHA-256 is {found}, not {sha256}. Move it away or delete it."
        )
    return found


def _fetch(url: str, path: Path, sha256: str | None) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give an address that begins with https:// or http://")
    pooch.get_logger().setLevel(logging.WARNING)  # it would announce what the progress bar shows
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, progressbar=sys.stderr.isatty())
    source = pooch.create(path.parent, "", registry={path.name: sha256}, urls={path.name: url}, retry_if_failed=RETRIES)
    source.fetch(path.name, downloader=downloader)

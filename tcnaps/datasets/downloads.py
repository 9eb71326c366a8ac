"""One file over HTTP: continued where it stopped, verified, and put in place whole or not at all."""

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tqdm.auto import tqdm

TIMEOUT = 30.0  # seconds without an answer or a byte
ATTEMPTS = 3  # times that a lost connection is taken up again within one call
PAUSE = 1.0  # seconds between them
CHUNK = 2**16  # bytes


class DownloadError(RuntimeError):
    """A file could not be downloaded, or is not what it should be; the message names the address and the remedy."""


class _Lost(Exception):
    """The connection failed, or what it brought can't be continued: worth another attempt."""


def download(url: str, path: str | Path, sha256: str | None = None) -> str:
    """Downloads one file unless it is there already.

    What has been received stays in `<path>.part` when the connection is lost or the call is interrupted; the next call
    goes on from there, or starts again if the file has changed on the server or the server can't continue.

    Args:
        url: http or https.
        path: where to put the file; its folder is made.
        sha256: 64 hexadecimal digits that the file must have, or None if they are unknown.

    Returns:
        The file's SHA-256.

    Raises:
        DownloadError: the address is wrong or can't be reached, the connection is lost again and again, the checksum
            differs, or another file stands at `path`: it is never overwritten.
    """
    path, sha256 = Path(path), sha256 and sha256.lower()
    _check_address(url)
    if sha256 and (len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef")):
        raise DownloadError(f"'{sha256}' is no SHA-256: give 64 hexadecimal digits.")
    try:
        return _there(url, path, sha256) if path.exists() else _fetch(url, path, sha256)
    except OSError as error:  # of the disk; those of the network don't come this far
        raise DownloadError(f"{path} can't be written or read: {error}. Choose another folder or make room.") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _there(url: str, path: Path, sha256: str | None) -> str:
    """The checksum of a file that stands at `path`, if it is the right one."""
    if sha256 is None:
        raise DownloadError(
            f"{path} is there already, and no checksum is known to compare it with. Delete it to "
            f"download {url} again, or give the SHA-256 it must have."
        )
    if (found := file_sha256(path)) != sha256:
        raise DownloadError(
            f"{path} is another file than {url}: its SHA-256 is {found}, not {sha256}. Move it away or delete it."
        )
    return found


def _fetch(url: str, path: Path, sha256: str | None) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    part, notes = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(url, part, notes)
            break
        except _Lost as error:
            if attempt == ATTEMPTS:
                kept, _ = _received(url, part, notes)
                remedy = (
                    f"{kept} bytes are kept in {part}; the same command again goes on from there"
                    if kept
                    else "Check the address and the connection, then try again"
                )
                raise DownloadError(f"{url} can't be downloaded: {error}. {remedy}.") from error
            time.sleep(PAUSE)
    found = file_sha256(part)
    if sha256 in (None, found):
        os.replace(part, path)
    part.unlink(missing_ok=True)
    notes.unlink(missing_ok=True)
    if sha256 not in (None, found):
        raise DownloadError(
            f"{url} has the SHA-256 {found}, not {sha256}: it was damaged on the way or is another "
            "file. What was received has been deleted. Try again, or correct the checksum."
        )
    return found


def _receive(url: str, part: Path, notes: Path) -> None:
    """Brings the partial file to its full size.

    `notes` holds what the server said of the file when its first byte came: with it a request to continue is for that
    very version (If-Range, RFC 9110 section 13.1.5), and the server sends a changed one from the start.
    """
    have, known = _received(url, part, notes)
    if have and have == known["size"]:
        return
    request = urllib.request.Request(url, headers={"User-Agent": "tcnaps", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", known["version"])
    with _open(request, part) as response:
        if response.status == 206:
            if not _continues(response, have, known):
                part.unlink(missing_ok=True)
                raise _Lost("the server sent another part of the file than it was asked for")
        else:
            have, known = 0, {"url": url, **_description(response)}
        size = known["size"]
        with (
            open(part, "ab" if have else "wb") as file,
            tqdm(total=size, initial=have, desc=part.stem, unit="B", unit_scale=True, disable=None) as bar,
        ):
            if not have:  # after the old bytes are gone: never may they stand beside the notes of a newer version
                notes.write_text(json.dumps(known), encoding="utf-8")
            while chunk := _read(response):
                file.write(chunk)
                have += len(chunk)
                bar.update(len(chunk))
    if size is not None and have != size:
        raise _Lost(f"the connection closed after {have} of {size} bytes")


def _received(url: str, part: Path, notes: Path) -> tuple[int, dict]:
    """How many bytes there are to go on from, and the notes on them; 0 where nothing can be continued."""
    try:
        have, known = part.stat().st_size, json.loads(notes.read_text(encoding="utf-8"))
        usable = known["url"] == url and known["version"] and known["size"] is not None and have <= known["size"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0, {}
    return (have, known) if usable else (0, {})


def _continues(response: http.client.HTTPResponse, have: int, known: dict) -> bool:
    """Whether what comes now are the bytes behind those received, of the same version of the file."""
    if not have or response.headers.get("Content-Range") != f"bytes {have}-{known['size'] - 1}/{known['size']}":
        return False
    return _description(response)["version"] in (None, known["version"])


def _description(response: http.client.HTTPResponse) -> dict:
    """The file's version by ETag or date, None without either, and its size in bytes, None if the server is silent."""
    tag, size = response.headers.get("ETag"), response.headers.get("Content-Length")
    if tag is not None and tag.startswith("W/"):  # weak: equal tags don't mean equal bytes
        tag = None
    version = tag or response.headers.get("Last-Modified")
    return {"version": version, "size": int(size) if size and size.isdigit() else None}


def _open(request: urllib.request.Request, part: Path) -> http.client.HTTPResponse:
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # there is nothing behind the bytes that were received: they are of another version
            part.unlink(missing_ok=True)
        if error.code == 416 or error.code >= 500:
            raise _Lost(f"the server answered {error.code} {error.reason}") from error
        raise DownloadError(
            f"{request.full_url} can't be downloaded: the server answered {error.code} {error.reason}. "
            "Open the address in a browser to see whether the file has moved."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise _Lost(_reason(error)) from error
    except ValueError as error:
        raise DownloadError(f"{request.full_url} is no address that can be opened: {error}. Correct it.") from error


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(CHUNK)  # what has come so far: none of it is lost when the rest does not
    except (OSError, http.client.HTTPException) as error:
        raise _Lost(_reason(error)) from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"nothing came for {TIMEOUT:g} s"
    return str(reason) or type(reason).__name__


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise DownloadError(f"'{url}' is no address: {error}. Correct it.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DownloadError(f"'{url}' can't be downloaded: give an address that begins with https:// or http://.")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but not to another kind of address nor from https to http."""

    def redirect_request(self, request, file, code, message, headers, url):
        _check_address(url)
        if request.type == "https" and urlsplit(url).scheme == "http":
            raise DownloadError(
                f"{request.full_url} leads to {url}, which is not encrypted. Name that address "
                "yourself if you trust it."
            )
        return super().redirect_request(request, file, code, message, headers, url)

"""Downloads from a server of the test's own, which can be made to break in every way that a real one does."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tcnaps.datasets import downloads
from tcnaps.datasets.downloads import DownloadError, download, file_sha256

CONTENT = bytes(range(256)) * 2_000  # 512,000 bytes: several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Site:
    """What the server sends, and the headers of every request that it got."""

    def __init__(self):
        self.content, self.tag, self.date = CONTENT, '"first"', None
        self.ranges, self.wrong_range, self.sized = True, False, True
        self.cut = []  # bytes after which to break off, an entry a response; then no more breaks
        self.stalled = False  # whether to fall silent at a cut instead of closing
        self.statuses = []  # an entry a response; then 200
        self.location = None
        self.requests = []
        self.ended = threading.Event()

    def answer(self, handler):
        self.requests.append(handler.headers)
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            handler.send_response(status)
            if 300 <= status < 400:
                handler.send_header("Location", self.location)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(asked[1]) if asked and self.ranges else 0
        if start and handler.headers.get("If-Range") not in (self.tag, self.date):
            start = 0
        if start and start >= len(self.content):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        body = self.content[start:]
        if start:
            first = 0 if self.wrong_range else start
            handler.send_header("Content-Range", f"bytes {first}-{len(self.content) - 1}/{len(self.content)}")
        if self.tag:
            handler.send_header("ETag", self.tag)
        if self.date:
            handler.send_header("Last-Modified", self.date)
        if self.sized:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if self.cut:
            body = body[: self.cut.pop(0)]
            handler.wfile.write(body)
            handler.wfile.flush()
            if self.stalled:
                self.ended.wait(10)
            return
        handler.wfile.write(body)


@pytest.fixture
def site(monkeypatch):
    """A server on this machine; `site.url` is its address."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                site.answer(self)
            except ConnectionError:  # the client was told to go away
                pass

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/folder/weights.pt"
    monkeypatch.setattr(downloads, "PAUSE", 0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield site
    site.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def ranges(site):
    return [headers.get("Range") for headers in site.requests]


def interrupted_download(site, path, n_bytes, **options):
    """A call whose connection is lost for good after `n_bytes`."""
    site.cut = [n_bytes] + [0] * (downloads.ATTEMPTS - 1)
    with pytest.raises(DownloadError, match="connection closed"):
        download(site.url, path, **options)
    assert not path.exists()
    site.requests.clear()


@pytest.mark.parametrize("sha256", [None, SHA256, SHA256.upper()])
def test_a_file_arrives_whole_and_nothing_else(site, tmp_path, sha256):
    path = tmp_path / "a" / "b" / "weights.pt"
    assert download(site.url, path, sha256) == SHA256
    assert path.read_bytes() == CONTENT and files(tmp_path) == ["weights.pt"]


def test_an_empty_file_arrives_too(site, tmp_path):
    site.content = b""
    assert download(site.url, tmp_path / "empty") == hashlib.sha256(b"").hexdigest()
    assert files(tmp_path) == ["empty"]


def test_a_file_that_is_there_with_the_right_checksum_is_not_downloaded(site, tmp_path):
    path = tmp_path / "weights.pt"
    path.write_bytes(CONTENT)
    assert download(site.url, str(path), SHA256) == SHA256
    assert site.requests == []


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_a_file_that_is_there_is_never_overwritten(site, tmp_path, sha256):
    path = tmp_path / "weights.pt"
    path.write_bytes(b"mine")
    with pytest.raises(DownloadError, match="no checksum is known" if sha256 is None else f"not {SHA256}"):
        download(site.url, path, sha256)
    assert path.read_bytes() == b"mine" and site.requests == []


def test_a_lost_connection_is_taken_up_where_it_ended(site, tmp_path):
    site.cut = [100_000, 200_000]
    assert download(site.url, tmp_path / "weights.pt", SHA256) == SHA256
    assert ranges(site) == [None, "bytes=100000-", "bytes=300000-"]
    assert site.requests[1]["If-Range"] == '"first"'
    assert files(tmp_path) == ["weights.pt"]


def test_without_a_tag_the_date_says_which_version_it_is(site, tmp_path):
    site.tag, site.date = None, "Tue, 01 Jun 2021 00:00:00 GMT"
    site.cut = [100_000]
    assert download(site.url, tmp_path / "weights.pt") == SHA256
    assert site.requests[1]["If-Range"] == site.date and ranges(site)[1] == "bytes=100000-"


@pytest.mark.parametrize("tag", [None, 'W/"first"'])
def test_bytes_of_an_unknown_version_are_not_continued(site, tmp_path, tag):
    site.tag = tag
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    assert download(site.url, tmp_path / "weights.pt") == SHA256
    assert ranges(site) == [None]


def test_what_was_received_is_kept_for_the_next_call(site, tmp_path):
    path = tmp_path / "weights.pt"
    site.cut = [100_000, 0, 0]
    with pytest.raises(DownloadError, match=f"after 100000 of 512000 bytes. 100000 bytes are kept in {path}.part"):
        download(site.url, path)
    assert files(tmp_path) == ["weights.pt.part", "weights.pt.part.json"]
    assert (tmp_path / "weights.pt.part").read_bytes() == CONTENT[:100_000]
    site.requests.clear()
    assert download(site.url, path) == SHA256
    assert ranges(site) == ["bytes=100000-"] and files(tmp_path) == ["weights.pt"]


def test_an_interrupted_call_keeps_what_was_received(site, tmp_path, monkeypatch):
    counts = []

    def update(self, n):
        counts.append(n)
        if sum(counts) > 150_000:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(downloads.tqdm, "update", update)
        with pytest.raises(KeyboardInterrupt):
            download(site.url, tmp_path / "weights.pt")
    kept = (tmp_path / "weights.pt.part").read_bytes()
    assert len(kept) == sum(counts) and kept == CONTENT[: len(kept)]
    site.requests.clear()
    assert download(site.url, tmp_path / "weights.pt") == SHA256
    assert ranges(site) == [f"bytes={len(kept)}-"]


def test_a_file_that_changed_on_the_server_is_taken_from_the_start(site, tmp_path):
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    site.content, site.tag = CONTENT[::-1], '"second"'
    assert download(site.url, tmp_path / "weights.pt") == hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert ranges(site) == ["bytes=100000-"]


def test_a_server_that_overlooks_the_change_is_not_believed(site, tmp_path, monkeypatch):
    """It answers 206 with the new version's tag although the request was for the old one's."""
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    original = site.answer

    def careless(handler):
        handler.headers.replace_header("If-Range", '"second"') if "If-Range" in handler.headers else None
        original(handler)

    site.answer, site.content, site.tag = careless, CONTENT[::-1], '"second"'
    assert download(site.url, tmp_path / "weights.pt") == hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert ranges(site) == ["bytes=100000-", None]


def test_a_server_that_cannot_continue_sends_it_all_again(site, tmp_path):
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    site.ranges = False
    assert download(site.url, tmp_path / "weights.pt", SHA256) == SHA256
    assert ranges(site) == ["bytes=100000-"] and files(tmp_path) == ["weights.pt"]


def test_a_part_that_was_not_asked_for_is_not_used(site, tmp_path):
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    site.wrong_range = True
    assert download(site.url, tmp_path / "weights.pt", SHA256) == SHA256
    assert ranges(site) == ["bytes=100000-", None]


def test_a_part_without_having_asked_for_one_is_an_error(site, tmp_path):
    site.statuses = [206] * downloads.ATTEMPTS
    with pytest.raises(DownloadError, match="another part of the file"):
        download(site.url, tmp_path / "weights.pt")


def test_a_complete_part_needs_no_request(site, tmp_path):
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    (tmp_path / "weights.pt.part").write_bytes(CONTENT)
    assert download(site.url, tmp_path / "weights.pt", SHA256) == SHA256
    assert site.requests == [] and files(tmp_path) == ["weights.pt"]


@pytest.mark.parametrize("damage", ["too long", "notes gone", "notes broken", "notes of another kind", "elsewhere"])
def test_a_part_that_cannot_be_trusted_is_not_continued(site, tmp_path, damage):
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    part, notes = tmp_path / "weights.pt.part", tmp_path / "weights.pt.part.json"
    if damage == "too long":
        part.write_bytes(CONTENT + b"!")
    elif damage == "notes gone":
        notes.unlink()
    elif damage == "elsewhere":
        notes.write_text(notes.read_text().replace("/folder/", "/another/"))
    else:
        notes.write_text("{" if damage == "notes broken" else "[]")
    assert download(site.url, tmp_path / "weights.pt", SHA256) == SHA256
    assert ranges(site) == [None] and files(tmp_path) == ["weights.pt"]


def test_when_nothing_is_left_to_send_it_starts_again(site, tmp_path):
    interrupted_download(site, tmp_path / "weights.pt", 100_000)
    site.content = CONTENT[:50_000]  # under the same tag, which no server should do
    assert download(site.url, tmp_path / "weights.pt") == hashlib.sha256(CONTENT[:50_000]).hexdigest()
    assert ranges(site) == ["bytes=100000-", None]


def test_another_checksum_is_an_error_that_leaves_nothing(site, tmp_path):
    wanted = "0" * 64
    with pytest.raises(DownloadError, match=f"{site.url} has the SHA-256 {SHA256}, not {wanted}"):
        download(site.url, tmp_path / "weights.pt", wanted)
    assert files(tmp_path) == []


def test_a_file_of_unannounced_size_arrives(site, tmp_path):
    site.sized = False
    assert download(site.url, tmp_path / "weights.pt", SHA256) == SHA256


def test_a_silent_server_is_left(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.2)
    monkeypatch.setattr(downloads, "ATTEMPTS", 2)
    site.cut, site.stalled = [100_000, 0], True
    with pytest.raises(DownloadError, match="nothing came for 0.2 s. 100000 bytes are kept"):
        download(site.url, tmp_path / "weights.pt")
    assert len(site.requests) == 2


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_names_address_and_status(site, tmp_path, status):
    site.statuses = [status]
    with pytest.raises(DownloadError, match=f"{site.url} can't be downloaded: the server answered {status}"):
        download(site.url, tmp_path / "weights.pt")
    assert len(site.requests) == 1 and files(tmp_path) == []


def test_a_server_in_trouble_is_asked_again(site, tmp_path):
    site.statuses = [503, 500]
    assert download(site.url, tmp_path / "weights.pt") == SHA256
    site.statuses = [503] * downloads.ATTEMPTS
    with pytest.raises(DownloadError, match="the server answered 503 .*Check the address and the connection"):
        download(site.url, tmp_path / "other.pt")


def test_redirections_are_followed_but_not_to_another_kind_of_address(site, tmp_path):
    site.statuses, site.location = [302], "/elsewhere"
    assert download(site.url, tmp_path / "weights.pt") == SHA256
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for location in (f"file://{secret}", "ftp://127.0.0.1/weights.pt"):
        site.statuses, site.location = [302], location
        with pytest.raises(DownloadError, match="is not allowed|begins with https:// or http://"):
            download(site.url, tmp_path / "other.pt")
    assert not (tmp_path / "other.pt").exists()


def test_a_redirection_may_not_drop_the_encryption():
    request = downloads.urllib.request.Request("https://127.0.0.1/weights.pt")
    with pytest.raises(DownloadError, match="not encrypted"):
        downloads._Redirects().redirect_request(request, None, 302, "Found", {}, "http://127.0.0.1/weights.pt")


@pytest.mark.parametrize(
    "url", ["file:///etc/hostname", "ftp://127.0.0.1/f", "data:,hello", "weights.pt", "https://", "http://[", ""]
)
def test_only_web_addresses_are_opened(url, tmp_path):
    with pytest.raises(DownloadError, match="can't be downloaded: give an address|is no address"):
        download(url, tmp_path / "weights.pt")
    assert files(tmp_path) == []


def test_an_address_that_cannot_be_reached(site, tmp_path):
    url = "http://127.0.0.1:1/weights.pt"  # a port that nothing listens on
    with pytest.raises(DownloadError, match=f"{url} can't be downloaded: .*refused.* Check the address"):
        download(url, tmp_path / "weights.pt")
    with pytest.raises(DownloadError, match="can't be"):
        download("http://127.0.0.1:port/weights.pt", tmp_path / "weights.pt")
    with pytest.raises(DownloadError, match="is no address that can be opened"):
        download(f"{site.url}/é", tmp_path / "weights.pt")


@pytest.mark.parametrize("sha256", ["abc", "g" * 64])
def test_a_checksum_that_is_none(site, tmp_path, sha256):
    with pytest.raises(DownloadError, match="is no SHA-256"):
        download(site.url, tmp_path / "weights.pt", sha256)


def test_a_place_that_cannot_be_written(site, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DownloadError, match="can't be written or read"):
        download(site.url, tmp_path / "file" / "weights.pt")


def test_the_checksum_of_a_file(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert file_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

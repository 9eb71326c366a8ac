"""Downloads from a server of the test's own: a file arrives whole and verified, or not at all."""

import functools
import hashlib
import http.server
import threading

import pytest

from tcnaps.training.downloads import DownloadError, download

CONTENT = bytes(range(256)) * 2_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder with weights.pt, its address, and how many bytes the server breaks off after, one entry per response."""
    folder, cuts = tmp_path / "served", []
    folder.mkdir()
    (folder / "weights.pt").write_bytes(CONTENT)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source, stream):
            content = source.read()
            stream.write(content[: cuts.pop(0)] if cuts else content)

        def log_message(self, *arguments):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/weights.pt", cuts
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("sha256", [None, SHA256, SHA256.upper()])
def test_a_file_arrives_whole_and_nothing_else(served, tmp_path, sha256):
    path = tmp_path / "a" / "b" / "weights.pt"
    assert download(served[1], path, sha256) == SHA256
    assert path.read_bytes() == CONTENT and list(path.parent.iterdir()) == [path]


def test_a_lost_connection_is_tried_again(served, tmp_path):
    served[2].extend([100_000, 0])
    assert download(served[1], tmp_path / "weights.pt", SHA256) == SHA256
    served[2].extend([100_000, 200_000, 0])
    with pytest.raises(DownloadError, match="weights.pt can't be downloaded"):
        download(served[1], tmp_path / "other.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["served", "weights.pt"]


def test_a_file_that_is_there_is_never_overwritten(served, tmp_path):
    path = tmp_path / "weights.pt"
    path.write_bytes(CONTENT)
    (served[0] / "weights.pt").unlink()
    assert download(served[1], path, SHA256) == SHA256  # without asking the server
    path.write_bytes(b"mine")
    for sha256, message in ((None, "no checksum is known"), (SHA256, f"not {SHA256}. Move it away")):
        with pytest.raises(DownloadError, match=message):
            download(served[1], path, sha256)
    assert path.read_bytes() == b"mine"


def test_another_checksum_is_an_error_that_leaves_nothing(served, tmp_path):
    with pytest.raises(DownloadError, match=f"(?s){served[1]} can't be downloaded.*{'0' * 64}.*{SHA256}"):
        download(served[1], tmp_path / "new" / "weights.pt", "0" * 64)
    assert not list((tmp_path / "new").iterdir())


def test_what_cannot_be_had_is_named(served, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for url, path, message in (
        (served[1] + "x", "weights.pt", "weights.ptx can't be downloaded to .*404"),
        ("http://127.0.0.1:1/weights.pt", "weights.pt", "http://127.0.0.1:1/weights.pt can't be downloaded"),
        (served[1], "file/weights.pt", "can't be downloaded to .*file/weights.pt: .*file"),
    ):
        with pytest.raises(DownloadError, match=message):
            download(url, tmp_path / path)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/f", "weights.pt", "https://", "http://["])
def test_only_web_addresses_are_opened(url, tmp_path):
    with pytest.raises(DownloadError, match="can't be downloaded"):
        download(url, tmp_path / "weights.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sha256", ["abc", "g" * 64])
def test_a_checksum_that_is_none(sha256, tmp_path):
    with pytest.raises(DownloadError, match="is not a SHA-256"):
        download("http://127.0.0.1:1/weights.pt", tmp_path / "weights.pt", sha256)

"""Whatever an image is encoded in, its pixels are the ones that its encoder meant; what can't be decoded says why."""

import struct

import numpy as np
import pytest
from file_readers import encoded
from hypothesis import given, strategies as st
from PIL import Image

from tcnaps.data import DatasetError, decoding
from tcnaps.data.decoding import resize_aligned, square, to_rgb

NO_SIMPLEJPEG = decoding.simplejpeg is None
needs_simplejpeg = pytest.mark.skipif(NO_SIMPLEJPEG, reason="no simplejpeg: pip install 'tcnaps[records]'")


def photo(height=33, width=40):
    """A smooth coloured picture, uint8 (height, width, 3)."""
    coarse = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def decoded(data, **options):
    return np.asarray(to_rgb(data, **options))


def naive_aligned(pixels, size):
    height, width = pixels.shape[:2]
    resized = np.zeros((size, size, 3))
    for i in range(size):
        for j in range(size):
            y = i * (height - 1) / (size - 1) if size > 1 else 0
            x = j * (width - 1) / (size - 1) if size > 1 else 0
            top, left = int(y), int(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            y, x = y - top, x - left
            upper = (1 - x) * pixels[top, left] + x * pixels[top, right]
            lower = (1 - x) * pixels[bottom, left] + x * pixels[bottom, right]
            resized[i, j] = (1 - y) * upper + y * lower
    return resized


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 30), st.integers(0, 99))
def test_aligned_corners_are_the_naive_loop_s(height, width, size, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    naive = naive_aligned(pixels, size)
    np.testing.assert_allclose(resize_aligned(pixels, size), naive, atol=1e-3)  # float32's positions
    resized = square(Image.fromarray(pixels), size, "aligned corners")
    np.testing.assert_allclose(resized, naive, atol=0.5 + 1e-3)
    if size > 1:
        np.testing.assert_array_equal(resized[:: size - 1, :: size - 1], pixels[[0, -1]][:, [0, -1]])


@pytest.mark.parametrize("kind", ["<u2", ">u2", "<i4"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind):
    levels = np.arange(64, dtype=np.uint16).reshape(8, 8) * 4
    values = levels * 257
    values[0, 0], values[0, 1] = 128, 129  # on either side of half a level
    data = encoded(Image.fromarray(values.astype(kind)), "TIFF")
    expected = levels.astype(np.uint8)
    expected[0, 0], expected[0, 1] = 0, 1
    np.testing.assert_array_equal(decoded(data), np.repeat(expected[:, :, None], 3, axis=2))


@pytest.mark.parametrize(("kind", "wrong"), [(np.int32, 70_000), (np.int32, -1), (np.float32, 0.5)])
def test_pixels_without_a_known_white_are_refused(kind, wrong):
    values = np.zeros((8, 8), kind)
    values[1, 2] = wrong
    with pytest.raises(DatasetError):
        decoded(encoded(Image.fromarray(values), "TIFF"))


def test_transparency_lies_on_white():
    pixels, opacity = photo(8, 8), np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    opacity[0, 0], opacity[-1, -1] = 0, 255
    over_white = pixels * (opacity[:, :, None] / 255) + 255 - opacity[:, :, None].astype(float)
    colour = decoded(encoded(np.dstack([pixels, opacity]), "PNG"))
    np.testing.assert_allclose(colour, over_white, atol=1)
    assert (colour[0, 0] == 255).all() and (colour[-1, -1] == pixels[-1, -1]).all()
    grey = decoded(encoded(Image.fromarray(np.dstack([pixels[:, :, 0], opacity]), "LA"), "PNG"))
    np.testing.assert_allclose(grey, np.repeat(over_white[:, :, :1], 3, axis=2), atol=1)
    palette = Image.new("P", (8, 8))
    palette.putpalette([200, 0, 0, 0, 100, 0, 0, 0, 50])
    palette.putdata([0, 1, 2, 2] * 16)
    pixels = decoded(encoded(palette, "GIF", transparency=1))
    np.testing.assert_array_equal(pixels[0, :3], [[200, 0, 0], [255, 255, 255], [0, 0, 50]])


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "JPEG"])
def test_orientation_is_applied(file_format):
    stored = decoded(encoded(photo(12, 20), file_format))
    exif = Image.Exif()
    exif[274] = 6  # the orientation
    turned = encoded(photo(12, 20), file_format, exif=exif)
    np.testing.assert_array_equal(decoded(turned), np.rot90(stored, -1))
    if file_format != "TIFF":
        np.testing.assert_array_equal(decoded(turned, orient=False), stored)
    if file_format == "JPEG" and not NO_SIMPLEJPEG:
        fast = decoded(turned, fast=True, orient=False)
        np.testing.assert_array_equal(decoded(turned, fast=True), np.rot90(fast, -1))


@pytest.mark.parametrize("block", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\x7f"])
def test_corrupt_exif_leaves_an_image_as_it_is(block):
    data = encoded(photo(8, 8), "JPEG")
    damaged = data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:]
    np.testing.assert_array_equal(decoded(damaged), decoded(data))


@needs_simplejpeg
def test_the_fast_transform_is_close_but_another():
    for mode in ("RGB", "CMYK"):
        data = encoded(Image.fromarray(photo(64, 64)).convert(mode), "JPEG", quality=85)
        accurate, fast = (decoded(data, fast=fast).astype(int) for fast in (False, True))
        assert 0 < np.abs(fast - accurate).max() <= 8
        np.testing.assert_allclose(accurate, photo(64, 64), atol=12)
    np.testing.assert_array_equal(decoded(encoded(photo(64, 64), "PNG"), fast=True), photo(64, 64))


@needs_simplejpeg
@pytest.mark.parametrize("fast", [False, True])
def test_a_jpeg_with_harmless_faults_is_read(fast):
    data = encoded(photo(16, 16), "JPEG")
    end = data.rindex(b"\xff\xd9")
    for faulty in (data + b"trailing bytes", data[:end] + b"\0\0\0" + data[end:]):
        np.testing.assert_array_equal(decoded(faulty, fast=fast), decoded(data, fast=fast))


def test_the_fast_transform_without_simplejpeg_is_refused(monkeypatch):
    monkeypatch.setattr(decoding, "simplejpeg", None)
    with pytest.raises(ImportError, match="simplejpeg"):
        to_rgb(encoded(photo(), "PNG"), fast=True)


@pytest.fixture(scope="module")
def official(reference):
    """Each toy image that was decoded officially: its JPEG, its decoded pixels and its resized ones by size."""
    pytest.importorskip("google_crc32c", reason="google-crc32c is not installed: pip install 'tcnaps[records]'")
    from tcnaps.data.readers.meta_dataset import read_index, record_at

    arrays = np.load(reference / "toy_decoded.npz")
    images = []
    for key in arrays:
        if key.endswith("_decoded"):
            stem = key.removesuffix("_decoded")
            label, number = int(stem[1:3]), int(stem[5:7])
            file = reference / "toy_records" / f"{label}.tfrecords"
            sizes = {size: arrays[f"{stem}_{size}"] for size in (84, 42) if f"{stem}_{size}" in arrays}
            images.append((record_at(file, *read_index(file)[number], label)[0], arrays[key], sizes))
    assert len(images) == 6
    return images


@needs_simplejpeg
def test_the_fast_transform_gives_the_official_pixels_exactly(official):
    for data, pixels, _ in official:
        np.testing.assert_array_equal(decoded(data, fast=True, orient=False), pixels)


def test_the_accurate_transform_differs_from_them_as_much_as_it_was_found_to(official):
    differences = np.concatenate([(decoded(data).astype(int) - pixels).ravel() for data, pixels, _ in official])
    assert np.abs(differences).max() <= 5 and 0.8 < differences.mean() < 0.86


def test_aligned_corners_are_the_official_resizing(official):
    for _, pixels, resized in official:
        assert 84 in resized
        for size, expected in resized.items():
            scaled = resize_aligned(pixels, size) / np.float32(127.5) - 1
            np.testing.assert_allclose(scaled, expected, rtol=0, atol=2.5e-7)
            rounded = square(Image.fromarray(pixels), size, "aligned corners")
            assert np.abs(rounded / 127.5 - 1 - expected).max() <= (0.5 + 1e-4) / 127.5


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"  # Pillow would run it as a program


@pytest.mark.parametrize("data", [b"", b"words, not pixels", EPS, encoded(photo(), "PNG")])
def test_no_bytes_no_image_and_too_large_an_image_are_refused(monkeypatch, data):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(DatasetError):
        to_rgb(data)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "GIF", "TIFF", "WEBP"])
def test_images_cut_short_are_refused(file_format):
    data = encoded(photo(64, 64), file_format)
    for end in (len(data) * 9 // 10, len(data) // 2, 30):
        for fast in {False, not NO_SIMPLEJPEG}:
            with pytest.raises(DatasetError):
                to_rgb(data[:end], fast)

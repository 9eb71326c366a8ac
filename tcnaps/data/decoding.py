"""Encoded images -> uint8 RGB squares, the same pixels on every machine.

Transparent pixels are laid on white; 16-bit greyscale is divided by 257 (65535 -> 255); the first frame of an animation
is taken; colour profiles are ignored. An image that isn't square is squashed, as in Meta-Dataset.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image, ImageOps

from tcnaps.config.settings import Resampling
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import ImageFile

try:
    import simplejpeg
except ImportError:  # optional: needed for the fast DCT alone
    simplejpeg = None

with contextlib.suppress(ImportError):  # optional: reads HEIC, in which many telephones store photographs
    from pillow_heif import register_heif_opener

    register_heif_opener()

Image.init()
# Formats that this Pillow reads, without those that have weak signatures (any bytes may look like TGA) or run programs.
FORMATS = tuple(name for name in "JPEG PNG GIF BMP TIFF WEBP PPM JPEG2000 AVIF HEIF".split() if name in Image.OPEN)


def decode_images(
    images: Sequence[ImageFile], read: Callable, orient: bool, size: int, resampling: Resampling, fast: bool
) -> tuple[UInt8[np.ndarray, "n {size} {size} 3"], dict[int, str]]:
    """`Preparation.work` for files: pixels, 0 where an image can't be read, and number -> reason of those images."""
    pixels, unreadable = np.zeros((len(images), size, size, 3), np.uint8), {}
    for number, image in enumerate(images):
        try:
            pixels[number] = square(to_rgb(read(image), fast, orient), size, resampling)
        except (DatasetError, OSError) as error:
            unreadable[number] = str(error)
    return pixels, unreadable


def square(image: Image.Image, size: int, resampling: Resampling) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """Resizes an RGB image to a square of bytes: as Pillow, which averages when it shrinks, or as `resize_aligned`."""
    if resampling == "aligned corners":
        return np.rint(resize_aligned(np.asarray(image), size)).astype(np.uint8)
    return np.array(image.resize((size, size), Image.Resampling[resampling.upper()]))


def resize_aligned(pixels: UInt8[np.ndarray, "height width 3"], size: int) -> Float32[np.ndarray, "{size} {size} 3"]:
    """Bilinear resizing to grey levels from 0 to 255, not rounded: TensorFlow's with `align_corners=True`.

    Output pixel i lies at position i * (n - 1) / (size - 1) of n pixels, so shrinking by more than two skips pixels.
    """
    above, below, down = _between(pixels.shape[0], size)
    left, right, across = _between(pixels.shape[1], size)
    kept = pixels[np.concatenate([above, below])]
    values = kept[:, left].astype(np.float32)
    values += (kept[:, right] - values) * across[:, None]
    return values[:size] + (values[size:] - values[:size]) * down[:, None, None]


def _between(n: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each output pixel: the two input pixels that it lies between, and its distance from the first."""
    position = np.arange(size, dtype=np.float32) * np.float32((n - 1) / max(size - 1, 1))
    first = np.minimum(position.astype(np.intp), n - 1)  # rounding may push the last position past the end
    return first, np.minimum(first + 1, n - 1), position - first.astype(np.float32)


def to_rgb(
    encoded: bytes, fast: bool = False, orient: bool = True, check: Callable | None = None, side: int | None = None
) -> Image.Image:
    """Decodes the content of an image file to RGB; a DatasetError says what is wrong with it.

    `fast` decodes JPEGs with the fast inverse cosine transform: TensorFlow's pixels exactly. `orient` applies the EXIF
    orientation, which TensorFlow does not. (TIFFs are turned upright in any case.) `check` is given the image before it
    is decoded. JPEGs may be decoded at a fraction of their size, in which no side is shorter than `side`.
    """
    if fast and simplejpeg is None:
        remedy = "pip install 'tcnaps[records]', or set jpeg_dct to accurate"
        raise ImportError(f"The fast DCT needs the package simplejpeg: {remedy}.")
    try:
        with warnings.catch_warnings(action="ignore"):  # of corrupt EXIF data, for instance
            image = Image.open(io.BytesIO(encoded), formats=FORMATS)
            if check is not None:
                check(image)
            if side is not None:
                image.draft("RGB", (side, side))
            if fast and image.format in ("JPEG", "MPO"):
                image = _fast_jpeg(encoded, image)
            image.load()
            if orient:
                with contextlib.suppress(Exception):  # an image with unreadable EXIF data stays as it is
                    ImageOps.exif_transpose(image, in_place=True)
            return _converted(image)
    except (DatasetError, MemoryError):
        raise
    except Image.UnidentifiedImageError as error:
        kind = f"no image of a format that is read here ({', '.join(FORMATS)})" if encoded else "empty (0 bytes)"
        raise DatasetError(f"it is {kind}.") from error
    except Exception as error:  # damaged bytes make Pillow's readers raise errors of every kind
        raise DatasetError(f"it is damaged, cut short, too large or of a kind that isn't read ({error}).") from error


def _fast_jpeg(encoded: bytes, image: Image.Image) -> Image.Image:
    colours = "CMYK" if image.mode == "CMYK" else "RGB"
    try:
        pixels = simplejpeg.decode_jpeg(encoded, colours, fastdct=True)
    except ValueError:  # simplejpeg refuses whatever libjpeg warns about; Pillow decides whether the image is usable
        image.load()
        pixels = simplejpeg.decode_jpeg(encoded, colours, fastdct=True, strict=False)
    if colours == "CMYK":
        pixels = 255 - pixels  # Adobe and Pillow store CMYK inverted
    decoded = Image.frombytes(colours, image.size, pixels.tobytes())
    decoded.info = image.info  # holds the EXIF data
    return decoded


def _converted(image: Image.Image) -> Image.Image:
    if image.mode[0] in "FI":  # Pillow reads the 16 bits per pixel of some formats as 32
        values = np.asarray(image)
        if values.dtype.kind == "f" or values.min() < 0 or values.max() > 65535:
            raise DatasetError("its grey levels are not whole numbers from 0 to 65535: save it with 8 or 16 bits.")
        return Image.fromarray(np.rint(values / 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("RGB")

"""Encoded images -> uint8 RGB squares, the same pixels on every machine and with every optional package.

Colours: EXIF orientation is applied; greyscale, palette and CMYK become RGB; transparent pixels lie on white;
16-bit greyscale is divided by 257 (65535 -> 255); of an animation, the first frame is taken. Colour profiles are
ignored, and 16-bit RGB loses its low bytes, as everywhere in Pillow.

An image that isn't square is squashed to a square, as in Meta-Dataset: nothing is cut off, the aspect ratio is lost.
"""

import io
import os
import stat
import warnings
from functools import cache, lru_cache
from pathlib import Path
from typing import get_args

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import ExifTags, Image, ImageFile, features

from tcnaps.config.settings import Resampling
from tcnaps.datasets.image_source import DatasetError

try:
    import simplejpeg
except ImportError:  # optional: needed for the fast DCT alone
    simplejpeg = None

MAXIMUM_PIXELS = 150_000_000  # below the 179 million at which Pillow itself refuses an image
# No formats with weak signatures (TGA: any bytes may look like one), and none that are programs (EPS).
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
RESAMPLERS = {"bilinear": Image.Resampling.BILINEAR, "lanczos": Image.Resampling.LANCZOS}
UPRIGHT = {  # EXIF orientation -> what turns the image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class ImageError(DatasetError):
    """An image can't be decoded; the message says what is wrong with it."""


def decode(
    data: bytes | Path, size: int, resampling: Resampling, jpeg_dct: str = "accurate", *, orient: bool = True
) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """Decodes an image and resizes it to a square of RGB bytes.

    Args:
        data: an encoded image, or the file that holds it.
        size: side of the result, in pixels.
        resampling: "bilinear" and "lanczos" are Pillow's, which average over all pixels when they shrink an image
            (Lanczos: MNIST and CIFAR in the released code). "aligned corners" is TensorFlow's, as in Meta-Dataset:
            see `resize_aligned`. Its rounding to bytes moves a value by at most half a grey level.
        jpeg_dct: the inverse cosine transform of JPEGs. "accurate" is everyone's default but TensorFlow's;
            "fast" gives TensorFlow's pixels exactly, up to 5 grey levels lower or higher, and needs simplejpeg.
        orient: False leaves an image as it is stored, whatever its EXIF orientation, as TensorFlow does. (A TIFF is
            turned upright in any case.)

    Raises:
        ImageError: `data` is empty, cut short, no image, or no regular file; the image has more than 150 million
            pixels or pixels that can't become RGB.
        ImportError: the DCT is "fast" and simplejpeg is missing.
        ValueError: there is no such size, resampling or DCT.
        OSError: the file can't be read.
    """
    _check_options(size, resampling, jpeg_dct)
    if isinstance(data, bytes):
        return _square(_rgb(data, jpeg_dct == "fast", orient), size, resampling)
    try:
        return decode(read_file(data), size, resampling, jpeg_dct, orient=orient)
    except ImageError as error:
        raise ImageError(f"{data}: {error}") from error


def read_file(path: str | Path) -> bytes:
    """The bytes of an image file.

    Raises:
        ImageError: it is a folder, a pipe or a device, from which reading might never end.
        OSError: it can't be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ImageError("it is not a file.")
    return Path(path).read_bytes()


def from_pixels(pixels: np.ndarray, size: int, resampling: Resampling) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """Resizes decoded pixels, uint8 (height, width) or (height, width, 3), as `decode` does.

    Raises:
        ImageError: the array has another type or shape, or no pixels.
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        raise ImageError(
            f"it is an array of {pixels.dtype} {pixels.shape}; uint8 (height, width) or (height, width, 3) is needed."
        )
    return _square(Image.fromarray(pixels).convert("RGB"), size, resampling)


def _square(image: Image.Image, size: int, resampling: Resampling) -> np.ndarray:
    if resampling == "aligned corners":
        return np.rint(resize_aligned(np.asarray(image), size)).astype(np.uint8)
    return np.array(image.resize((size, size), RESAMPLERS[resampling]))


def resize_aligned(pixels: UInt8[np.ndarray, "height width 3"], size: int) -> Float32[np.ndarray, "{size} {size} 3"]:
    """Bilinear resizing that maps corner pixels onto corner pixels and never averages over more than 2 x 2 pixels.

    Output i lies at i * (n - 1) / (size - 1) of n pixels (TensorFlow's `resize_bilinear`, `align_corners=True`).
    Shrinking an image by more than two thus skips pixels.

    Returns:
        grey levels from 0 to 255, not rounded.
    """
    rows, above, below, down = _rows(pixels.shape[0], size)
    left, right, across = _columns(pixels.shape[1], size)
    kept = pixels.reshape(len(pixels), -1)[rows]  # colours as columns: gathering is much faster this way
    values = kept.take(left, axis=1).astype(np.float32)
    values += (kept.take(right, axis=1) - values) * across
    resized, lower = values[above], values[below]
    resized += (lower - resized) * down
    return resized.reshape(size, size, 3)


def _between(n: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each output pixel: the two input pixels it lies between, and how far it is from the first to the second."""
    step = np.float32((n - 1) / (size - 1)) if size > 1 else np.float32(0)
    position = np.arange(size, dtype=np.float32) * step
    first = np.minimum(position.astype(np.intp), n - 1)  # rounding may carry the last one past the end
    return first, np.minimum(first + 1, n - 1), position - first.astype(np.float32)


@lru_cache(maxsize=1024)
def _rows(n: int, size: int) -> tuple[np.ndarray, ...]:
    """The rows needed, which of them lie above and below each output row, and the weight of the lower one."""
    above, below, share = _between(n, size)
    rows, numbers = np.unique(np.concatenate([above, below]), return_inverse=True)
    return rows, numbers[:size], numbers[size:], share[:, None]


@lru_cache(maxsize=1024)
def _columns(n: int, size: int) -> tuple[np.ndarray, ...]:
    """The columns left and right of each output column, one entry per colour, and the weight of the right one."""
    left, right, share = _between(n, size)
    return *((3 * column[:, None] + np.arange(3)).ravel() for column in (left, right)), np.repeat(share, 3)


def _check_options(size: int, resampling: str, jpeg_dct: str) -> None:
    if size < 1:
        raise ValueError(f"An image can't have a side of {size} pixels; it must be at least 1.")
    for value, choices in ((resampling, get_args(Resampling)), (jpeg_dct, ("accurate", "fast"))):
        if value not in choices:
            raise ValueError(f"There is no '{value}'; there are: {', '.join(choices)}.")
    if jpeg_dct == "fast" and simplejpeg is None:
        raise ImportError(
            "Decoding JPEGs with the fast DCT needs the package simplejpeg: pip install 'tcnaps[records]'; or use "
            "the accurate DCT."
        )
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ValueError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on: missing parts of images would come out grey; set it to False."
        )


def _rgb(encoded: bytes, fast: bool, orient: bool) -> Image.Image:
    """Decodes an image to RGB, upright if `orient`."""
    if not encoded:
        raise ImageError("it is empty (0 bytes).")
    try:
        with warnings.catch_warnings(action="ignore"):  # of corrupt EXIF data, for instance
            image = Image.open(io.BytesIO(encoded), formats=_formats())
            if image.width * image.height > MAXIMUM_PIXELS:
                raise ImageError(
                    f"it has {image.width} x {image.height} pixels, more than {MAXIMUM_PIXELS}: scale it down first."
                )
            if image.format not in ("JPEG", "MPO"):  # loading these raises no warnings and takes longest
                image.load()
            turn = _turn(image) if orient else None
        if image.format in ("JPEG", "MPO"):
            image = _load_jpeg(encoded, image, fast)
        image = _to_rgb(image)
    except (ImageError, MemoryError):
        raise
    except Image.UnidentifiedImageError as error:
        raise ImageError(f"it is no image of a format that is read here ({', '.join(_formats())}).") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"it has too many pixels: scale it down first ({error})") from error
    except Exception as error:  # damaged bytes make Pillow's readers raise errors of every kind
        raise ImageError(f"it is damaged, cut short or of a kind that Pillow can't read ({error}).") from error
    return image if turn is None else image.transpose(turn)


@cache
def _formats() -> tuple[str, ...]:
    """The formats that this build of Pillow reads."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What turns an image upright. Like a viewer, takes an image without readable EXIF data as upright."""
    try:
        return UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # of any kind, from the depths of a damaged table
        return None


def _load_jpeg(encoded: bytes, image: Image.Image, fast: bool) -> Image.Image:
    """Decodes a JPEG that Pillow has opened.

    simplejpeg is much faster with small images and gives the same bytes, provided that Pillow uses libjpeg-turbo, too.
    It refuses whatever libjpeg warns about; Pillow decides which of these images are usable.
    """
    if not fast and (simplejpeg is None or image.mode == "CMYK" or not features.check_feature("libjpeg_turbo")):
        image.load()
        return image
    colours = "CMYK" if image.mode == "CMYK" else "RGB"
    try:
        pixels = simplejpeg.decode_jpeg(encoded, colours, fastdct=fast)
    except ValueError:
        image.load()  # raises if it is cut short
        if not fast:
            return image
        try:
            pixels = simplejpeg.decode_jpeg(encoded, colours, fastdct=True, strict=False)
        except ValueError as error:  # simplejpeg tolerates no fault in the header
            raise ImageError(
                f"it is damaged, and simplejpeg can't read it ({error}): save it anew, or use the accurate DCT."
            ) from error
    if colours == "RGB":
        return Image.fromarray(pixels)
    return Image.frombytes("CMYK", image.size, (255 - pixels).tobytes())  # inverted, as Adobe and Pillow have it


def _to_rgb(image: Image.Image) -> Image.Image:
    """Converts a loaded image of any kind to RGB."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode[0] in "IF":  # 16 or 32 bits a pixel
        return Image.fromarray(_grey_bytes(image)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _grey_bytes(image: Image.Image) -> np.ndarray:
    """Grey levels of more than eight bits -> uint8 (height, width). White is 65535, or 1 or 255 in floating point."""
    values = np.asarray(image)
    lowest, highest = values.min(), values.max()
    if image.mode == "F":
        white, kind, limits = 1 if highest <= 1 else 255, "floating-point", "1, or 0 and 255"
    else:
        bits = getattr(image, "tag_v2", {}).get(ExifTags.Base.BitsPerSample, (16,))[0]  # 12 in some TIFFs
        white = limits = 4095 if bits == 12 else 65535
        kind = "greyscale"
    if not (lowest >= 0 and highest <= white):  # nor NaN
        raise ImageError(
            f"its values go from {lowest} to {highest}: those of a {kind} image must lie between 0 and {limits}."
        )
    grey = np.rint(values * (255 / white)).astype(np.uint8)
    if image.mode != "F" and "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255
    return grey

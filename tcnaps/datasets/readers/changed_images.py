"""Images that are changed as Meta-Dataset does before it stores them: inverted, or cut out by a box."""

import io
import os
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from tcnaps.datasets.decoding import ImageError
from tcnaps.datasets.listing import ImageFile


def read_inverted(image: ImageFile) -> UInt8[np.ndarray, "height width"]:
    """Grey levels of an image file, black and white exchanged.

    Raises:
        ImageError: it can't be decoded.
        OSError: it can't be read.
    """
    return 255 - np.asarray(_decoded(image.path, "L"))


def read_box(image: ImageFile) -> UInt8[np.ndarray, "height width 3"]:
    """What lies in a box of an image file: left, top, right and bottom, the first numbers of the image's position.

    JPEGs are decoded with the accurate DCT, as by Meta-Dataset, whatever the study's: it cuts with Pillow.

    Raises:
        ImageError: it can't be decoded, or the box does not lie within it.
        OSError: it can't be read.
    """
    decoded = _decoded(image.path, "RGB")
    left, top, right, bottom = box = image.position[:4]
    if not (0 <= left < right <= decoded.width and 0 <= top < bottom <= decoded.height):
        raise ImageError(
            f"{image.path}: the box {box} does not lie within its {decoded.width} x {decoded.height} pixels."
        )
    return np.asarray(decoded.crop(box))


def _decoded(path: str, mode: str) -> Image.Image:
    if os.path.exists(path) and not os.path.isfile(path):
        raise ImageError(f"{path} is not a file.")  # reading a device or a pipe could take for ever
    encoded = Path(path).read_bytes()
    try:
        return Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")).convert(mode)
    except Exception as error:  # Pillow lets slip whatever damaged bytes make it stumble over
        raise ImageError(f"{path} is empty, damaged, cut short, or neither JPEG nor PNG ({error}).") from error

"""Images, and a reader of them that tests can make fail: in a module that other processes can import."""

import io
import os
import signal
from pathlib import Path

import numpy as np
from PIL import Image

from tcnaps.data.listing import ImageFile, read_file

ROOT = "TCNAPS_TEST_READERS"  # the folder whose file "trap" says what happens, and at which image


def encoded(image: Image.Image | np.ndarray, format: str = "PNG", **options) -> bytes:
    """An image or its pixels as a file's content."""
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def noise(seed: int, size: tuple[int, int] = (12, 10), format: str = "PNG", mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return encoded(Image.fromarray(pixels).convert(mode), format)


def set_trap(action: str, name: str) -> None:
    (Path(os.environ[ROOT]) / "trap").write_text(f"{action}\n{name}")


def read_or_fail(image: ImageFile) -> bytes:
    """Reads as `read_file` does, unless a trap is set for this file."""
    root = Path(os.environ[ROOT])
    trap = root / "trap"
    action, name = trap.read_text().split("\n") if trap.exists() else ("", "")
    if name == Path(image.path).name:
        if action == "kill this process":
            os.kill(os.getpid(), signal.SIGKILL)
        os.rename(root / "images", root / "unplugged")
    return read_file(image)

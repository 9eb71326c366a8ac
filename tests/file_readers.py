"""Images, and readers of them, for tests of preparations: in a module that other processes can import."""

import io
import os
import signal
import time
from pathlib import Path

import numpy as np
from PIL import Image

from tcnaps.data.listing import ImageFile, read_file

ROOT = "TCNAPS_TEST_READERS"  # the folder where reads are noted in "reads" and "trap" says what happens, at which file


def encoded(seed: int, size: tuple[int, int] = (12, 10), format: str = "PNG", mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, format)
    return stream.getvalue()


def reads() -> list[str]:
    """Names of the files that were read, by any process, since the last time."""
    log = Path(os.environ[ROOT]) / "reads"
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def set_trap(action: str, name: str) -> None:
    (Path(os.environ[ROOT]) / "trap").write_text(f"{action}\n{name}")


def disarm() -> None:
    (Path(os.environ[ROOT]) / "trap").unlink()


def noted(image: ImageFile) -> bytes:
    """Reads as `read_file` does, but notes it, and may be trapped."""
    name, root = Path(image.path).name, Path(os.environ[ROOT])
    trap = root / "trap"
    if trap.exists() and name == trap.read_text().split("\n")[1]:
        match trap.read_text().split("\n")[0]:
            case "kill this process":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill the parent":
                time.sleep(3)  # until the parent has written what others have decoded
                parent = os.getppid()
                os.kill(parent, signal.SIGKILL)
                while os.getppid() == parent:
                    time.sleep(0.01)
            case "unplug":
                os.rename(root.parent / "images", root.parent / "unplugged")
    with (root / "reads").open("a") as log:
        log.write(f"{name}\n")
    return read_file(image)

"""What each process of `tcnaps.training.launching.run_together` runs: python -m tcnaps.training JOB.json."""

import json
import os
import select
import sys
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread

import torch
from torch import distributed
from torch.distributed.elastic.multiprocessing.errors import record

from tcnaps.config import Study


@record
def main(file: str) -> None:
    """Does this process's share of a job; an error is passed on to the launcher."""
    Thread(target=_end_with_launcher, args=(os.getppid(),), daemon=True).start()
    job = json.loads(Path(file).read_text())
    study = Study.model_validate(job["study"], strict=False).of_replicate(job["replicate"])
    device = f"cuda:{os.environ['LOCAL_RANK']}" if job["device"] == "cuda" else job["device"]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"  # the loopback interface alone
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        resolve_name(job["task"])(study, device=device, **job["options"])
    finally:
        distributed.destroy_process_group()


def _end_with_launcher(launcher: int) -> None:
    """Ends this process once `torchrun` is gone, or whoever holds the other end of standard input."""
    while os.getppid() == launcher and not select.select([0], [], [], 0.5)[0]:
        pass
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])

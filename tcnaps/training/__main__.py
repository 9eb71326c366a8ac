"""What each process of `tcnaps.training.launching.run_together` runs: python -m tcnaps.training JOB.json."""

import json
import os
import sys
from pathlib import Path
from pkgutil import resolve_name

from torch.distributed.elastic.multiprocessing.errors import record

from tcnaps.config import Study
from tcnaps.training.launching import joined


@record
def main(file: str) -> None:
    """Does this process's share of a job; an error is passed on to the launcher."""
    job = json.loads(Path(file).read_text())
    study = Study.model_validate(job["study"], strict=False).of_replicate(job["replicate"])
    device = f"cuda:{os.environ['LOCAL_RANK']}" if job["device"] == "cuda" else job["device"]
    with joined():
        resolve_name(job["task"])(study, device=device, **job["options"])


if __name__ == "__main__":
    main(sys.argv[1])

"""Makes the demonstration: some episodes of the built-in study, which notebooks show while nothing is trained.

    make demonstration        (python docs/demonstration.py STUDY)

The rules by which they are chosen, of what the variant Transductive gains over FEOT, the same networks without
refinement, with the study's stopping rule:

* every dataset is shown in one of three evaluations, in turn: 5-way 1-shot, variable (out of balance), 5-way 5-shot;
* of a dataset, the episode of at most `MOST_IMAGES` images that gains most; then, of the others, the one that loses
  most; then the one in which most labels change after the rule's maximum.

Rows are kept as an evaluation writes them, with what is predicted from the features that are kept.
"""

import shutil
import sys
from dataclasses import replace
from io import BytesIO
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml
from jaxtyping import Float
from PIL import Image

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.storage import replacing, write_text
from tcnaps.config.study import study_file
from tcnaps.evaluation.result_files import load_rows, rows_file, write_rows
from tcnaps.evaluation.stopped_rows import recorded_predictions
from tcnaps_suite.episodes import EPISODES, FOLDER, STUDY
from tcnaps_suite.experiments.study_episodes import ShownEpisode, features_of
from tcnaps_suite.widgets import episode_table, explorer_data, stepper_data
from tcnaps_suite.workflow.reference import write_checksums

EVALUATIONS = ("5-way-1-shot", "variable", "5-way-5-shot")
VARIANTS = {"support": "COT", "support_and_query": "Transductive"}  # the trainings whose features are kept
MOST_IMAGES = 150  # of an episode


def chosen_episodes(study: Study) -> dict[tuple[str, str], list[int]]:
    """Evaluation and dataset → the numbers of the episodes, by the rules above."""
    chosen = {}
    for turn, name in enumerate(EVALUATIONS):
        rows = load_rows(study, name, ["support_and_query"])
        late = np.diff(recorded_predictions(rows)[:, study.refinement.maximum_steps :], axis=1) != 0
        late = rows.assign(late=late.sum(1)).groupby(["dataset", "episode"])["late"].sum().reset_index()
        table = explorer_data.episodes(rows, "Transductive", "FEOT", study.refinement.limits)
        table = table[table["n_support"] + table["n_query"] <= MOST_IMAGES].merge(late, on=["dataset", "episode"])
        for dataset in study.evaluations[name].datasets[turn :: len(EVALUATIONS)]:
            own, numbers = table[table["dataset"] == dataset], []
            for column, rising in (("gain", False), ("gain", True), ("late", False)):
                left = own[~own["episode"].isin(numbers)]
                numbers.append(int(left.sort_values([column, "episode"], ascending=[rising, True])["episode"].iloc[0]))
            chosen[name, dataset] = numbers
    return chosen


def in_span(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
    """The same points in coordinates of their own span, r < n: all that depends on distances alone stays as it is."""
    centred = points.astype(float) - points.mean(0, dtype=float)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    return (left * singular)[:, : len(points) - 1].astype(np.float32)


def make(path: str | Path) -> Path:
    """Makes the demonstration from a study that has been evaluated; returns its folder."""
    study, chosen = load_study(path), chosen_episodes(load_study(path))
    folder = project_root() / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # rows of datasets that the study no longer has
    write_text(folder / STUDY, study_yaml(study_file(path), chosen))
    small, arrays = load_study(folder / STUDY), {}
    for ((name, dataset), numbers), (training, variant) in product(chosen.items(), VARIANTS.items()):
        rows, frames = load_rows(study, name, [training]), []
        for new, number in enumerate(numbers):
            features = features_of(study, variant, name, dataset, number)
            points = in_span(torch.cat([features.support_features, features.query_features]).numpy())
            kept = arrays_of(features) | {training: points}
            arrays |= {f"{name}/{dataset}/{new}/{key}": value for key, value in kept.items()}
            own = episode_table.rows_of_episode(rows, variant, dataset, number)
            frames.append(predicted_again(own, features, points, study).assign(episode=new))
        write_rows(rows_file(small, training, name, dataset), pd.concat(frames, ignore_index=True), "demonstration")
    with replacing(folder / EPISODES) as temporary:
        np.savez_compressed(temporary, **arrays)
    write_checksums()
    return folder


def study_yaml(file: Path, chosen: dict[tuple[str, str], list[int]]) -> str:
    """The built-in study's YAML with these episodes alone, which are counted anew: 0, 1, 2."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    evaluations = {}
    for name, dataset in chosen:
        own = content["evaluations"][name] | {"datasets": [], "episodes": 3, "trainings": list(VARIANTS)}
        evaluations.setdefault(name, own)["datasets"].append(dataset)
    content |= {"name": FOLDER.name, "trainings": list(VARIANTS), "evaluations": evaluations}
    heading = ["The demonstration, made by `make demonstration`. Its episodes in the built-in study:"]
    heading += [f"  {name}, {dataset}: {', '.join(map(str, numbers))}" for (name, dataset), numbers in chosen.items()]
    return "".join(f"# {line}\n" for line in heading) + yaml.safe_dump(content, sort_keys=False)


def arrays_of(features: ShownEpisode) -> dict[str, np.ndarray]:
    """What `tcnaps_suite.episodes` reads of an episode, besides its features."""
    images = np.concatenate([features.support_images, features.query_images])
    pictures = BytesIO()
    Image.fromarray(images.reshape(-1, *images.shape[2:])).save(pictures, "webp", quality=90)
    return {
        "class_names": np.array(features.class_names),
        "support_labels": features.support_labels.numpy(),
        "query_labels": features.query_labels.numpy(),
        "pictures": np.frombuffer(pictures.getvalue(), np.uint8),
    }


def predicted_again(own: pd.DataFrame, features: ShownEpisode, points: np.ndarray, study: Study) -> pd.DataFrame:
    """An episode's rows with what is predicted from the points that are kept in place of its features."""
    support, query = torch.from_numpy(points).split([len(features.support_labels), len(features.query_labels)])
    kept = replace(features, support_features=support, query_features=query)
    found = stepper_data.run(kept, steps=study.refinement.recorded_steps).rows
    return own.assign(**{name: found[name].astype(own[name].dtype) for name in found if name[-1].isdigit()})


if __name__ == "__main__":
    try:
        print(make(*sys.argv[1:]))
    except UserError as error:
        sys.exit(str(error))

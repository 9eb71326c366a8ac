"""Episodes through a model: one row per query image, from which every table and every figure is computed."""

import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.storage import file_digest
from tcnaps.data import open_split
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import RowsError, asked_of, read_rows, rows_file, write_manifest, write_rows
from tcnaps.method.clustering import LowVarianceWarning, trajectory
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, load_model, new_model
from tcnaps.training.processes import gather, rank, run_together, share


def evaluate(study: Study, training: str, device: torch.device | str = "cpu", processes: int = 1) -> Path:
    """Runs every evaluation of the study that names this training; returns the manifest of the files written.

    A file made from the same episodes, weights and settings is kept, so that an interrupted call goes on where it was.
    Several `processes` share the episodes; their number changes no row if each has as many threads.
    """
    if processes != 1:
        run_together(processes, evaluate, study, device, training=training)
    trained = load_model(study, training, device)
    untrained = new_model(study, training).eval().to(device)
    weights = [*map(file_digest, (backbone_file(study), checkpoint_folder(study) / f"{training}.safetensors"))]
    evaluations = {name: each for name, each in study.evaluations.items() if training in each.trainings}
    jobs = [(name, dataset) for name, evaluation in evaluations.items() for dataset in evaluation.datasets]
    files = []
    for name, dataset in (bar := tqdm(jobs, f"evaluating {training}", unit="file", disable=rank() > 0)):
        bar.set_postfix_str(f"{name}, {dataset}", refresh=False)
        before_training = study.evaluations[name].before_training
        source, path = open_split(study, dataset, "test"), rows_file(study, training, name, dataset)
        inputs = [source.digest, *weights[: 1 if before_training else 2]]
        key = job_key(inputs, study, "evaluation", training=training, evaluation=name, dataset=dataset)
        files.append(path)
        with suppress(RowsError):  # a missing or damaged file is made again
            if read_rows(path)[1] == key:
                continue
        rows = evaluate_dataset(untrained if before_training else trained, source, study, name)
        if rank() == 0:
            write_rows(path, rows, key, asked_of(study, name))
    return write_manifest(study, training, files) if rank() == 0 else Path()


@torch.no_grad()
def evaluate_dataset(model: TransductiveCNAPS, source: ImageSource, study: Study, name: str) -> pd.DataFrame:
    """The rows of the evaluation `name` on one dataset."""
    evaluation, device, frames = study.evaluations[name], next(model.parameters()).device, []
    facts = {"training": model.training_name, "replicate": study.replicate, "evaluation": name}
    facts |= {"dataset": source.dataset, "domain": study.datasets[source.dataset].domain, "split": source.split}
    indices = share(tqdm(range(evaluation.episodes), f"{name}, {source.dataset}", leave=False, disable=rank() > 0))
    with warnings.catch_warnings(action="ignore", category=LowVarianceWarning):
        for index in indices:
            draw = draw_episode(source, evaluation.protocol, study.seed, index)
            episode, labels = load_episode(source, draw, device), draw.query_labels
            logits = trajectory(*model.features(episode), model.head, study.refinement.recorded_steps)
            confidences, predictions = logits.softmax(2).max(2)
            frame = {
                **facts,
                "episode": index,
                "way": episode.way,
                "n_support": len(draw.support_labels),
                "queries_per_class": int(np.bincount(labels).max()),
                "query": np.arange(len(labels)),
                "label": labels,
                "class_name": [source.class_names[draw.classes[label]] for label in labels],
                "shot": episode.shots.cpu().numpy()[labels],
                "image": draw.query_images,
            }
            frame |= {f"prediction_{t}": p for t, p in enumerate(predictions.to(torch.int16).cpu().numpy())}
            frame |= {f"confidence_{t}": c for t, c in enumerate(confidences.float().cpu().numpy())}
            frames.append(pd.DataFrame(frame))
    return pd.concat(gather(frames), ignore_index=True)

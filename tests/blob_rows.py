"""Rows of an episode of blobs, as an evaluation records them, with made-up predictions."""

import numpy as np
from small_study import blobs
from synthetic_rows import synthetic_rows

from tcnaps.episodes.sampling import draw_episode


def blob_rows(study, evaluation, dataset, index, training="support", seed=0):
    """One row per query, and the episode's draw."""
    source = blobs(dataset, "test")
    draw = draw_episode(source, study.evaluations[evaluation].protocol, study.seed, index)
    labels, way = draw.query_labels, len(draw.classes)
    domains, n_queries = {dataset: study.datasets[dataset].domain}, len(labels) // way
    made = synthetic_rows((training,), 1, 4, (way,), n_queries, evaluation, domains, seed=100 * seed + index)
    rows = made.sort_values("label", ignore_index=True).assign(
        episode=index,
        n_support=len(draw.support_labels),
        query=np.arange(len(labels)),
        shot=np.bincount(draw.support_labels)[labels],
        class_name=[source.class_names[draw.classes[k]] for k in labels],
        image=draw.query_images,
    )
    return rows, draw

"""A table of one row per query with made-up predictions, for the tests of statistics, tables and figures."""

import numpy as np
import pandas as pd

DATASETS = {"letters": "in", "textures": "in", "digits": "out"}


def synthetic_rows(
    trainings=("support", "support_and_query"),
    n_episodes=12,
    n_steps=6,
    ways=(3, 4, 5),
    queries_per_class=4,
    evaluation="variable",
    datasets=DATASETS,
    seed=0,
):
    """Predictions that change less and less from step to step; the same episodes in every training."""
    frames = []
    for d, (dataset, domain) in enumerate(datasets.items()):
        for episode in range(n_episodes):
            images = np.random.default_rng([seed, d, episode])
            way = int(images.choice(ways))
            names = np.random.default_rng([seed, d, episode, 0]).permutation([f"class {k}" for k in range(way + 6)])
            shots = images.integers(1, 15, way)
            label = images.permutation(np.repeat(np.arange(way), queries_per_class))
            image = images.integers(0, 10**6, len(label))
            for t, training in enumerate(trainings):
                random = np.random.default_rng([seed, d, episode, t + 1])
                right = random.random(len(label)) < 0.6 + 0.05 * t
                prediction = np.where(right, label, random.integers(0, way, len(label)))
                predictions = [prediction]
                for step in range(1, n_steps + 1):
                    moved = random.random(len(label)) < 0.25 / step**1.5
                    prediction = np.where(moved, random.integers(0, way, len(label)), prediction)
                    predictions.append(prediction)
                facts = {"training": training, "replicate": 0, "evaluation": evaluation, "dataset": dataset}
                facts |= {"domain": domain, "split": "test", "episode": episode, "way": way, "n_support": shots.sum()}
                facts |= {"queries_per_class": queries_per_class, "query": np.arange(len(label)), "label": label}
                facts |= {"class_name": names[label], "shot": shots[label], "image": image}
                facts |= {f"prediction_{t}": values.astype(np.int16) for t, values in enumerate(predictions)}
                confidences = [random.random(len(label)).astype(np.float32) for _ in predictions]
                facts |= {f"confidence_{t}": values for t, values in enumerate(confidences)}
                frames.append(pd.DataFrame(facts))
    return pd.concat(frames, ignore_index=True)


def predictions_of(episode):
    """The labels after steps 0 to 6, (7, n_query), of an episode's rows."""
    return episode[[f"prediction_{t}" for t in range(7)]].to_numpy().T

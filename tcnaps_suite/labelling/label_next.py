"""Which images a person should label next: doubtful ones, each of which stands for many other doubtful ones."""

import numpy as np
from jaxtyping import Float, Int

NUMBER = 10  # images at a time
CANDIDATES = 2000  # the most doubtful images, from which NUMBER are chosen
NEAR = 2.0  # an image's likeness to another is exp(−NEAR · d² / median of d²)


def label_next(
    points: Float[np.ndarray, "n_unlabelled r"], probabilities: Float[np.ndarray, "n_unlabelled way"]
) -> Int[np.ndarray, "m"]:
    """Numbers of the unlabelled images whose labels help most, the best first; at most `NUMBER`.

    An image's doubt is 1 − (its highest probability − its second). Images are chosen one by one. Each choice raises
    most the sum, over the candidates, of doubt × likeness to the nearest chosen image (facility location; Krause and
    Golovin, 2014). So outliers, which are like no other image, are not chosen, however doubtful they are.
    """
    ordered = np.sort(probabilities, axis=1)
    doubt = 1 - (ordered[:, -1] - ordered[:, -2])
    candidates = np.argsort(-doubt, kind="stable")[:CANDIDATES]
    points = points[candidates]
    squares = np.square(points).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0)
    likeness = np.exp(-NEAR * distances / (np.median(distances) or 1))
    nearest, chosen = np.zeros(len(candidates)), []
    for _ in range(min(NUMBER, len(candidates))):
        gains = doubt[candidates] @ np.maximum(likeness - nearest[:, None], 0)
        gains[chosen] = -1
        chosen.append(int(gains.argmax()))
        nearest = np.maximum(nearest, likeness[:, chosen[-1]])
    return candidates[chosen]

"""The paper's equations as naive loops in all d dimensions. Slow on purpose; nothing is shared with tcnaps."""

from decimal import Decimal, localcontext

import numpy as np
import torch


def naive_statistics(features, weights, identity_weight=1.0, task_divisor="n", class_divisor="n"):
    """Equations 9-12 (1-4 where the weights are one-hot): class means and regularised covariances."""
    n, d = features.shape
    way = weights.shape[1]
    total = weights.sum()
    mean = sum(weights[j, k] * features[j] for j in range(n) for k in range(way)) / total
    task = torch.zeros(d, d, dtype=features.dtype)
    for j in range(n):
        for k in range(way):
            task += weights[j, k] * torch.outer(features[j] - mean, features[j] - mean)
    task = task / (total - 1 if task_divisor == "n-1" else total)
    means, covariances = [], []
    for k in range(way):
        n_k = weights[:, k].sum()
        mu = sum(weights[j, k] * features[j] for j in range(n)) / n_k
        sigma = torch.zeros(d, d, dtype=features.dtype)
        for j in range(n):
            sigma += weights[j, k] * torch.outer(features[j] - mu, features[j] - mu)
        if class_divisor == "n-1" and n_k == 1:  # the released Simple CNAPS: the variance of one image's features
            image = sum(weights[j, k] * features[j] for j in range(n))
            sigma = sum((z - sum(image) / d) ** 2 for z in image) / (d - 1) * torch.ones_like(sigma)
        else:
            sigma = sigma / (n_k - 1 if class_divisor == "n-1" else n_k)
        shrinkage = n_k / (n_k + 1)
        means.append(mu)
        mixed = shrinkage * sigma + (1 - shrinkage) * task
        covariances.append(mixed + identity_weight * torch.eye(d, dtype=features.dtype))
    return torch.stack(means), torch.stack(covariances)


def naive_logits(points, means, covariances, scale=1.0, log_determinant=False):
    """Equation 5, or the mixture equation's exponent. The scale "auto" makes the median gap to the second class 2."""
    squared = torch.zeros(len(points), len(means), dtype=points.dtype)
    for k, (mean, covariance) in enumerate(zip(means, covariances)):
        inverse = torch.linalg.inv(covariance)
        for i, z in enumerate(points):
            squared[i, k] = (z - mean) @ inverse @ (z - mean)
    if scale == "auto":
        gaps = sorted(float(row.sort().values[1] - row.sort().values[0]) for row in squared)
        scale = 2 / gaps[(len(gaps) - 1) // 2] if gaps else 1
    logits = -scale * squared
    if log_determinant:
        logits -= torch.stack([torch.linalg.slogdet(covariance).logabsdet for covariance in covariances]) / 2
    return logits


def naive_trajectory(
    support,
    labels,
    query,
    steps,
    extra=None,
    unlabelled="query",
    metric="mahalanobis",
    update="means and covariances",
    scale=1.0,
    log_determinant=False,
    class_divisor="n",
    class_prior=None,
    uniform_weight=0.5,
    **covariance_options,
):
    """Algorithm 1 without its end: the query logits after steps 0, ..., `steps`; `class_divisor` is step 0's."""
    way = int(labels.max()) + 1
    points = {"query": query, "extra": query[:0] if extra is None else extra}
    used = ["query", "extra"] if unlabelled == "both" else [unlabelled]
    one_hot = torch.eye(way, dtype=support.dtype)[labels]
    members, weights = support, one_hot
    record, first = [], None
    prior = [1 / way] * way if class_prior == "estimated" else class_prior
    for step in range(steps + 1):
        divisor = class_divisor if step == 0 else "n"
        means, covariances = naive_statistics(members, weights, class_divisor=divisor, **covariance_options)
        if metric == "euclidean":
            covariances = torch.eye(support.shape[1], dtype=support.dtype).expand_as(covariances)
        first = covariances if first is None else first
        if update == "means":
            covariances = first
        determinant = log_determinant and metric != "euclidean"
        logits = {n: naive_logits(x, means, covariances, scale, determinant) for n, x in points.items()}
        if prior is not None:
            logits = {name: x + torch.log(torch.as_tensor(prior, dtype=x.dtype)) for name, x in logits.items()}
        record.append(logits["query"])
        members = torch.cat([support] + [points[name] for name in used])
        weights = torch.cat([one_hot] + [torch.softmax(logits[name], dim=1) for name in used])
        if class_prior == "estimated":
            soft = weights[len(support) :]
            shares = [soft[:, k].sum() / soft.sum() for k in range(way)]
            prior = torch.stack([uniform_weight / way + (1 - uniform_weight) * share for share in shares])
    return torch.stack(record)


def naive_stopping_step(labels, minimum, maximum):
    """The released loop: refine, compare with the step before, stop if nothing changed and enough is done."""
    step = 0
    while step < maximum:
        step += 1
        unchanged = list(labels[step]) == list(labels[step - 1])
        if unchanged and step >= minimum:
            break
    return step


def step_0_in_60_digits(support, labels, query, identity_weight):
    """Equations 1-5 in decimal numbers: the query logits, less each row's largest, as float64."""
    support, query = (np.array([[Decimal(value) for value in row] for row in x.tolist()]) for x in (support, query))

    def mean_and_covariance(images):
        deviations = images - images.sum(0) / len(images)
        return images.sum(0) / len(images), deviations.T.dot(deviations) / len(images)

    with localcontext(prec=60):
        task, logits = mean_and_covariance(support)[1], []
        for k in range(int(labels.max()) + 1):
            images = support[labels.numpy() == k]
            mean, sigma = mean_and_covariance(images)
            covariance = (len(images) * sigma + task) / (len(images) + 1)
            covariance += np.diag([Decimal(identity_weight)] * len(mean))
            rows, distances = np.concatenate([covariance, query - mean]), 0
            while rows.shape[1] > 0:  # Cholesky: a column of the factor, and the same column of the whitened rows
                column = rows[:, 0] / rows[0, 0].sqrt()
                size = rows.shape[1]
                distances = distances + column[size:] ** 2
                rows = (rows - column[:, None] * column[:size])[1:, 1:]
            logits.append(-distances)
        logits = np.stack(logits, 1)
        return torch.from_numpy((logits - logits.max(1, keepdims=True)).astype(float))

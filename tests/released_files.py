"""Files as the authors' release has them, by the recipes in the README of the folder of reference values."""

import json
import zlib

import numpy as np
import torch


def released_shapes(kind):
    """Names and shapes in a file of this kind ("backbone", "simple", "transductive"), written out apart from tcnaps."""
    shapes = {}

    def norm(name, channels):
        for leaf in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{leaf}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    root = "" if kind == "backbone" else "feature_extractor."
    shapes[f"{root}conv1.weight"] = (64, 3, 5, 5)
    norm(f"{root}bn1", 64)
    for layer, inputs, outputs in ((1, 64, 64), (2, 64, 128), (3, 128, 256), (4, 256, 512)):
        for block in (0, 1):
            name = f"{root}layer{layer}.{block}"
            shapes[f"{name}.conv1.weight"] = (outputs, inputs if block == 0 else outputs, 3, 3)
            norm(f"{name}.bn1", outputs)
            shapes[f"{name}.conv2.weight"] = (outputs, outputs, 3, 3)
            norm(f"{name}.bn2", outputs)
            if layer > 1 and block == 0:
                shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                norm(f"{name}.downsample.1", outputs)
    if kind == "backbone":
        return shapes
    for layer in (1, 2, 3, 4, 5):
        name = f"set_encoder.pre_pooling_fn.layer{layer}"
        shapes[f"{name}.0.weight"] = (64, 3 if layer == 1 else 64, 3, 3)
        shapes[f"{name}.0.bias"] = (64,)
        norm(f"{name}.1", 64)
    if kind == "transductive":
        for layer in ("l0", "l1"):
            for which in ("ih", "hh"):
                shapes[f"set_encoder.sequential_encoder.weight_{which}_{layer}"] = (256, 64)
                shapes[f"set_encoder.sequential_encoder.bias_{which}_{layer}"] = (256,)
    for stage, channels in enumerate((64, 128, 256, 512)):
        name = f"feature_adaptation_network.layers.{stage}"
        shapes[f"{name}.shared_layer.0.weight"] = (channels, 64)
        shapes[f"{name}.shared_layer.0.bias"] = (channels,)
        for what in ("gamma1", "gamma2", "beta1", "beta2"):
            for block in (0, 1):
                for layer in (0, 2, 4):
                    shapes[f"{name}.{what}_processors.{block}.{layer}.linear.weight"] = (channels, channels)
                    shapes[f"{name}.{what}_processors.{block}.{layer}.linear.bias"] = (channels,)
                shapes[f"{name}.{what}_regularizers.{block}"] = (channels,)
    return shapes


def random_weights(kind, seed=0):
    """Weights of the right names and shapes. A tensor's equal rows share their memory, so that files are small."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in released_shapes(kind).items():
        row = torch.randn(shape[-1:], generator=generator)
        row = row.abs() if name.endswith("running_var") else row
        weights[name] = row.expand(shape) if shape else torch.tensor(len(name))
    return weights


def write_file(path, content, legacy=False):
    """What torch.save makes of weights, in the format before PyTorch 1.6 if `legacy`."""
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def write_released(path, model, reference):
    """Writes a whole model, such as "transductive_cnaps_film" of keys.json, by the weight recipe (section 2)."""
    entries = json.loads((reference / "keys.json").read_text())[model]["entries"]
    return write_file(path, {name: _recipe_weight(name, tuple(entry["shape"])) for name, entry in entries.items()})


def _recipe_weight(name, shape):
    if name.endswith("num_batches_tracked"):
        return torch.tensor(0)
    canonical = name
    if name.startswith("feature_adaptation_network.feature_extractor."):
        canonical = name.removeprefix("feature_adaptation_network.")
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(f"shared:{canonical}".encode())))
    n = generator.standard_normal(shape)
    if "regularizers" in name:
        value = 0.25 * n
    elif name.endswith("running_mean"):
        value = 0.1 * n
    elif name.endswith("running_var"):
        value = np.exp(0.2 * n)
    elif len(shape) == 4:
        value = 1.25 * n / np.sqrt(shape[1] * shape[2] * shape[3])
    elif ".sequential_encoder.weight" in name:
        value = 3 * n / np.sqrt(shape[1])
    elif len(shape) == 2:
        value = n / np.sqrt(shape[1])
    elif len(shape) == 1 and name.endswith(".weight"):
        value = 1 + 0.1 * n
    else:
        value = 0.1 * n
    return torch.from_numpy(value.astype(np.float32))


def recipe_images(npz):
    """Support and then query images of one case, NCHW float32 in [-1, 1], by the image recipe (section 3)."""
    seed, size, alpha = (int(npz[key]) for key in ("image_seed", "image_size", "alpha"))
    pixels = []
    for j, label in enumerate(np.concatenate([npz["support_labels"], npz["query_labels"]]).tolist()):
        share = alpha - 5 * (label % 4)
        template, noise = _upsampled(_grid(seed + 1 + label, 5), size), _upsampled(_grid(seed + 1000 + j, 12), size)
        pixels.append((share * template + (100 - share) * noise + 50) // 100)
    images = (np.stack(pixels).astype(np.uint8) / 127.5 - 1).astype(np.float32)
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def _grid(seed, side):
    numbers = np.random.PCG64(seed).random_raw(side * side * 3) >> np.uint64(56)
    return numbers.astype(np.int64).reshape(side, side, 3)


def _upsampled(grid, size):
    """Bilinear with aligned corners, in whole numbers."""
    side = len(grid)
    first, rest = np.divmod(np.arange(size) * (side - 1), size - 1)
    second = np.minimum(first + 1, side - 1)
    across, down = rest[None, :, None], rest[:, None, None]
    rows = grid[first] * (size - 1 - down) + grid[second] * down
    return (rows[:, first] * (size - 1 - across) + rows[:, second] * across) // (size - 1) ** 2

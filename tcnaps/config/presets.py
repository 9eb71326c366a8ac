"""The two sides of every difference between the paper and its released code, as sets of a study's switches.

A study says `preset: paper` (the default) or `preset: released`; every switch can also be set on its own, which goes
before the preset. docs/fidelity.md tells what each switch means and where the two sides come from. Some switches
depend on the benchmark: Meta-Dataset's episodes are of variable way and shot, mini- and tiered-ImageNet's of fixed.
"""

PRESETS: dict[str, dict[str, dict]] = {
    "paper": {
        "both": {
            "clustering": {"task_covariance_divisor": "n", "simple_class_covariance_divisor": "n"},
            "task_encoder": {"lstm_layers": 1, "statistics": "batch"},
            "meta_training": {"query_loss": "mean", "film_penalty": 0.0, "keep_best_by": "mean accuracy"},
            "statistics": {"interval": "student", "ranks": "plain"},
            "pixel_range": [-1, 1],
            "decoding": {"jpeg_dct": "accurate", "resampling": "bilinear"},
            "arithmetic": "fast",
            "refinement": {"minimum_steps": 2},
        },
        "variable": {
            "meta_training": {
                "protocol": {"shots": "meta-dataset", "maximum_way": 50, "maximum_support_size": 500},
                "validate_every": 10_000,
            },
            "refinement": {"maximum_steps": 4},
        },
        "fixed": {"meta_training": {"validate_every": 2_000}, "refinement": {"maximum_steps": 10}},
    },
    "released": {
        "both": {
            "clustering": {"task_covariance_divisor": "n-1", "simple_class_covariance_divisor": "n-1"},
            "task_encoder": {"lstm_layers": 2, "statistics": "batch"},
            "meta_training": {"query_loss": "sum", "film_penalty": 1e-3, "keep_best_by": "half of the datasets"},
            "statistics": {"interval": "released", "ranks": "significant"},
            "arithmetic": "plain",
            "refinement": {"minimum_steps": 2, "maximum_steps": 4},
        },
        "variable": {
            "meta_training": {
                "protocol": {"shots": "meta-dataset", "maximum_way": 40, "maximum_support_size": 400},
                "validation_protocol": {"kind": "variable", "maximum_way": 50, "maximum_support_size": 500},
                "validate_every": 10_000,
            },
            "pixel_range": [-1, 1],
            "decoding": {"jpeg_dct": "fast", "resampling": "aligned corners"},
        },
        "fixed": {
            "meta_training": {"validate_every": 1_000},
            "pixel_range": [0, 1],
            "decoding": {"jpeg_dct": "accurate", "resampling": "bilinear"},
        },
    },
}


def with_preset(content: dict) -> dict:
    """A study's content with the preset's switches where it says nothing itself."""
    preset, name = None, content.get("preset", "paper")
    if isinstance(name, str):
        preset = PRESETS.get(name)
    if preset is None:  # the name is wrong: validation says so
        return content
    meta_training = content.get("meta_training")
    protocol = meta_training.get("protocol") if isinstance(meta_training, dict) else None
    kind = protocol.get("kind") if isinstance(protocol, dict) else None
    of_kind = preset.get(kind, {}) if isinstance(kind, str) else {}
    return merged(merged(preset["both"], of_kind), content)


def merged(below: dict, above: dict) -> dict:
    """`above`, and what only `below` has, section by section."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merged(below[key], above[key])
    return both

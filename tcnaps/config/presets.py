"""The two sides of every difference between the paper and its released code, as sets of a study's switches.

A study says `preset: paper` (the default) or `preset: released`; every switch can also be set on its own, which goes
before the preset. docs/fidelity.md tells what each switch means and where the two sides come from. Some switches
depend on the benchmark: Meta-Dataset's episodes are of variable way and shot, mini- and tiered-ImageNet's of fixed.
"""

# What a preset does not name is as in the paper, by default.
PRESETS: dict[str, dict[str, dict]] = {
    "paper": {
        "both": {},
        "variable": {},
        "fixed": {"meta_training": {"validate_every": 2_000}, "refinement": {"maximum_steps": 10}},
    },
    "released": {
        "both": {
            "clustering": {"task_covariance_divisor": "n-1", "simple_class_covariance_divisor": "n-1"},
            "task_encoder": {"lstm_layers": 2},
            "meta_training": {"query_loss": "sum", "film_penalty": 1e-3, "keep_best_by": "half of the datasets"},
            "statistics": {"interval": "released", "ranks": "significant"},
            "arithmetic": "plain",
        },
        "variable": {
            "meta_training": {
                "protocol": {"maximum_way": 40, "maximum_support_size": 400},
                "validation_protocol": {"kind": "variable"},
            },
            "decoding": {"jpeg_dct": "fast", "resampling": "aligned corners"},
        },
        "fixed": {"meta_training": {"validate_every": 1_000}, "pixel_range": [0, 1]},
    },
}


def with_preset(content: dict) -> dict:
    """A study's content with the preset's switches where it says nothing itself."""
    preset = PRESETS.get(str(content.get("preset", "paper")), {})  # a wrong name or kind is validation's to refuse
    training = content.get("meta_training")
    protocol = training.get("protocol") if isinstance(training, dict) else None
    kind = str(protocol.get("kind")) if isinstance(protocol, dict) else ""
    return merged(merged(preset.get("both", {}), preset.get(kind, {})), content)


def merged(below: dict, above: dict) -> dict:
    """`above`, and what only `below` has, section by section."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merged(below[key], above[key])
    return both

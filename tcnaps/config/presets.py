"""Presets of a study's switches: as in the paper, or as in its released code.

A study says `preset: paper` (the default) or `preset: released`. A switch that the study sets itself overrides the
preset. docs/fidelity.md explains each switch. Some values depend on the protocol: Meta-Dataset's episodes have variable
way and shot, those of mini- and tiered-ImageNet fixed way and shot.
"""

# The defaults of the settings are the paper's, so presets hold only what differs from them.
PRESETS: dict[str, dict[str, dict]] = {
    "paper": {"fixed": {"meta_training": {"validate_every": 2_000}, "refinement": {"maximum_steps": 10}}},
    "released": {
        "both": {
            "clustering": {"task_covariance_divisor": "n-1", "simple_class_covariance_divisor": "n-1"},
            "task_encoder": {"lstm_layers": 2},
            "meta_training": {"query_loss": "sum", "film_penalty": 1e-3, "keep_best_by": "half of the datasets"},
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
    """A study's content, completed by the switches of its preset."""
    preset = PRESETS.get(str(content.get("preset", "paper")), {})  # validation refuses an unknown name
    try:
        kind = str(content["meta_training"]["protocol"]["kind"])
    except (KeyError, TypeError, IndexError):  # validation says what is missing
        kind = ""
    return merged(merged(preset.get("both", {}), preset.get(kind, {})), content)


def merged(below: dict, above: dict) -> dict:
    """Two nested dictionaries merged, section by section; values of `above` win."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merged(below[key], above[key])
    return both

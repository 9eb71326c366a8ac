"""A study of a few episodes, which every notebook can be run on."""

PROTOCOL = {"kind": "variable", "maximum_way": 6, "maximum_support_size": 18, "queries_per_class": 3}
VARIABLE = {
    "protocol": PROTOCOL,
    "datasets": ["textures", "digits"],
    "episodes": 3,
    "trainings": [
        "support",
        "support_and_query",
        "support_and_query_refined",
        "support_log_determinant",
        "support_and_query_log_determinant",
        "support_and_query_log_determinant_refined",
    ],
}
STUDY = {
    "name": "tiny",
    "image_size": 32,
    "datasets": {
        "textures": {"source": "miniature", "domain": "in"},
        "digits": {"source": "miniature", "domain": "out"},
    },
    "pretraining": {
        "datasets": ["textures"],
        "epochs": 1,
        "schedule": "one cycle",
        "batch_size": 128,
        "valid_fraction": 0.85,
    },
    "meta_training": {
        "datasets": ["textures"],
        "protocol": PROTOCOL,
        "episodes": 2,
        "episodes_per_step": 1,
        "validate_every": 1,
        "validation_datasets": ["textures"],
        "validation_episodes": 2,
    },
    "evaluations": {
        "variable": VARIABLE,
        "variable-before-training": VARIABLE | {"before_training": True, "episodes": 2},
        **{
            f"5-way-1-shot-{n}": {
                "protocol": {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": n},
                "datasets": ["textures", "digits"],
                "trainings": ["support", "support_and_query"],
                "episodes": 2,
            }
            for n in (3, 6)
        },
    },
}

"""Pretraining, meta-training, checkpoints, and weights of the authors' release."""

"""Pretraining and meta-training, their checkpoints and saved states, and the weights of the authors' release."""

"""Labels a folder of images from a few labelled examples of each class."""

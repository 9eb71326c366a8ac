"""Variants × episodes → one row per query; rows → accuracies, intervals, recall, paired differences and claims."""

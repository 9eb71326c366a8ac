"""Variants × episodes to one row per query; rows to accuracies, intervals, recall and paired differences."""

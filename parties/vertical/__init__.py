"""Vertical training and prediction: the active and the passive party."""

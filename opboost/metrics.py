"""Scores of predictions against the truth."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from opboost.arrays import Values
from opboost.errors import DataError


def auc(labels: Values, scores: Values) -> float:
    """Area under the ROC curve: the chance that a random 1 scores above a random 0, ties counting half."""
    n_positive = int((labels == 1).sum())
    n_negative = len(labels) - n_positive
    if n_positive == 0 or n_negative == 0:
        raise DataError("the area under the ROC curve needs labels of both classes")
    ranks = rankdata(scores)
    return float((ranks[labels == 1].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def error_rate(labels: Values, predicted: Values) -> float:
    """Share of labels that were predicted wrongly."""
    return float(np.mean(labels != predicted))


def log_loss(labels: Values, probabilities: Values) -> float:
    """Mean cross-entropy in nats of probabilities, shape ``(n_rows,)`` or ``(n_rows, n_classes)``."""
    if probabilities.ndim == 1:
        probabilities = np.column_stack([1 - probabilities, probabilities])
    chosen = probabilities[np.arange(len(labels)), labels.astype(np.int64)]
    return float(-np.mean(np.log(np.clip(chosen, 1e-15, None))))


def rmse(labels: Values, predicted: Values) -> float:
    """Root of the mean squared error, in the labels' unit."""
    return float(np.sqrt(np.mean((labels - predicted) ** 2)))


def r2(labels: Values, predicted: Values) -> float:
    """Share of the labels' variance that the predictions explain."""
    variation = float(np.sum((labels - labels.mean()) ** 2))
    if variation == 0:
        raise DataError("the share of explained variance needs labels that differ")
    return float(1 - np.sum((labels - predicted) ** 2) / variation)


def evaluate(loss_name: str, labels: Values, predictions: Values) -> dict[str, float]:
    """The customary metrics of an objective; the first one is its headline."""
    if loss_name == "reg:squarederror":
        return {"r2": r2(labels, predictions), "rmse": rmse(labels, predictions)}
    if predictions.ndim == 2:
        chosen = predictions.argmax(axis=1).astype(np.float64)
        return {"accuracy": 1 - error_rate(labels, chosen), "mlogloss": log_loss(labels, predictions)}
    predicted = (predictions > 0.5).astype(np.float64)
    return {
        "auc": auc(labels, predictions),
        "error": error_rate(labels, predicted),
        "logloss": log_loss(labels, predictions),
    }

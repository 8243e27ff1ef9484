"""Evaluation metrics of predictions against labels."""

from __future__ import annotations

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError
from opboost.trees.losses import Loss
from opboost.trees.validation import Metric


def auc(labels: Values, scores: Values) -> float:
    """Area under the ROC curve: the chance that a random 1 scores above a random 0, ties counting half."""
    n_positive = int((labels == 1).sum())
    n_negative = len(labels) - n_positive
    if n_positive == 0 or n_negative == 0:
        raise DataError("the area under the ROC curve needs labels of both classes")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Equal scores share the mean of their ranks.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[labels == 1].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def _auc_or_chance(labels: Values, scores: Values) -> float:
    """As `auc`, and 0.5 where rows that are held out happen to be of one class: they tell nothing of the order."""
    return auc(labels, scores) if len(np.unique(labels)) > 1 else 0.5


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


def mae(labels: Values, predicted: Values) -> float:
    """Mean absolute error, in the labels' unit."""
    return float(np.mean(np.abs(labels - predicted)))


def poisson_nloglik(labels: Values, means: Values) -> float:
    """Mean negative log likelihood of counts whose means were predicted."""
    # Loaded here for the reason that `opboost.trees.losses` gives.
    from scipy.special import gammaln

    means = np.maximum(means, 1e-16)
    return float(np.mean(means - labels * np.log(means) + gammaln(labels + 1)))


def metric_by_name(name: str, loss: Loss) -> Metric:
    """The evaluation metric that XGBoost knows by this name.

    Raises
    ------
    ParameterError
        If there is none, or if it does not score what the loss predicts.
    """
    kinds = {"binary:logistic": "a probability", "multi:softprob": "probabilities"}
    kind = kinds.get(loss.name, "a number")
    match name, kind:
        case "auc", "a probability":
            return Metric(name, _auc_or_chance, is_higher_better=True)
        case "logloss", "a probability":
            return Metric(name, log_loss)
        case "error", "a probability":
            return Metric(name, lambda labels, predicted: error_rate(labels, (predicted > 0.5).astype(np.float64)))
        case "mlogloss", "probabilities":
            return Metric(name, log_loss)
        case "merror", "probabilities":
            return Metric(name, lambda labels, predicted: error_rate(labels, predicted.argmax(axis=1)))
        case "poisson-nloglik", "a number":
            return Metric(name, poisson_nloglik)
        case "rmse", "a number" | "a probability":
            return Metric(name, rmse)
        case "mae", "a number" | "a probability":
            return Metric(name, mae)
    known = "auc, error, logloss, mae, merror, mlogloss, poisson-nloglik and rmse"
    raise ParameterError(f"eval_metric {name!r} does not score {kind}, as {loss.name} predicts; there are {known}")


def default_metric(loss: Loss) -> str:
    """The metric by which XGBoost judges an objective unless told otherwise."""
    names = {"binary:logistic": "logloss", "multi:softprob": "mlogloss", "count:poisson": "poisson-nloglik"}
    return names.get(loss.name, "rmse")


def evaluate(loss_name: str, labels: Values, predictions: Values) -> dict[str, float]:
    """The usual metrics of an objective; the first one is the main one."""
    if loss_name == "reg:squarederror":
        return {"r2": r2(labels, predictions), "rmse": rmse(labels, predictions)}
    if loss_name == "count:poisson":
        return {"poisson-nloglik": poisson_nloglik(labels, predictions), "rmse": rmse(labels, predictions)}
    if predictions.ndim == 2:
        chosen = predictions.argmax(axis=1).astype(np.float64)
        return {"accuracy": 1 - error_rate(labels, chosen), "mlogloss": log_loss(labels, predictions)}
    predicted = (predictions > 0.5).astype(np.float64)
    return {
        "auc": auc(labels, predictions),
        "error": error_rate(labels, predicted),
        "logloss": log_loss(labels, predictions),
    }

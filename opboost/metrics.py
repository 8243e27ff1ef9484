"""Evaluation metrics of predictions against labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError, nearest
from opboost.trees.kernels.concordance import count_pairs
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Cox,
    Gamma,
    LambdaRank,
    Logistic,
    Loss,
    Ordinal,
    Poisson,
    PseudoHuber,
    Quantiles,
    Several,
    Softmax,
    SquaredError,
    Tweedie,
)
from opboost.trees.losses.ranking import mean_average_precision, ndcg
from opboost.trees.losses.survival import signed_times
from opboost.trees.validation import Metric, finite


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


def gini(labels: Values, scores: Values) -> float:
    """Gini coefficient of a ranking of labels 0 and 1: ``2 AUC - 1``."""
    return 2 * auc(labels, scores) - 1


def _roc(labels: Values, scores: Values) -> tuple[Values, Values]:
    """Labels of 0 and of 1 above each different score, from none to all."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    n_positive = np.append(0.0, np.cumsum(labels[order] == 1)[ends])
    return np.append(0, ends + 1) - n_positive, n_positive


def ks(labels: Values, scores: Values) -> float:
    """Kolmogorov-Smirnov statistic: the largest distance between the scores' distributions of labels 0 and 1."""
    false, true = _roc(labels, scores)
    if not false[-1] or not true[-1]:
        raise DataError("the Kolmogorov-Smirnov statistic needs labels of both classes")
    return float(np.abs(true / true[-1] - false / false[-1]).max())


def auc_pr(labels: Values, scores: Values) -> float:
    """Area under the curve of precision over recall, between its points as Davis and Goadrich (2006) interpolate."""
    false, true = _roc(labels, scores)
    n_positive = true[-1]
    if not n_positive:
        raise DataError("the area under the precision-recall curve needs labels of 1")
    steps = np.diff(true) > 0
    slope = np.divide(np.diff(false)[steps], np.diff(true)[steps])
    a, b = 1 + slope, (false[:-1][steps] - slope * true[:-1][steps]) / n_positive
    low, high = true[:-1][steps] / n_positive, true[1:][steps] / n_positive
    with np.errstate(divide="ignore", invalid="ignore"):
        bend = np.where(b == 0, 0.0, b / a * np.log((a * high + b) / (a * low + b)))
    return float(((high - low - bend) / a).sum())


def concordance(labels: Values, predicted: Values) -> float:
    """Harrell's C: the share of comparable pairs whose predicted times are in order, ties counting half.

    Labels are those of `opboost.trees.losses.survival`. A pair is comparable if the earlier time is an event's;
    where there is none, the share is that of chance.
    """
    if labels.ndim == 2:
        labels = signed_times(labels)
    order = np.lexsort((labels > 0, -np.abs(labels)))
    different, places = np.unique(predicted[order], return_inverse=True)
    times = labels[order]
    n_pairs, n_ordered = count_pairs(np.abs(times), times > 0, places.astype(np.int64), len(different))
    return float(n_ordered / n_pairs) if n_pairs else 0.5


def pinball(labels: Values, predicted: Values, alphas: tuple[float, ...]) -> float:
    """Mean pinball loss of quantiles, shape ``(n_rows,)`` or ``(n_rows, n_quantiles)``."""
    over = labels[:, None] - predicted.reshape(len(labels), -1)
    return float(np.mean(np.maximum(np.array(alphas) * over, (np.array(alphas) - 1) * over)))


def gamma_deviance(labels: Values, means: Values) -> float:
    """Mean deviance of gamma distributed labels whose means were predicted."""
    ratio = (labels + 1e-6) / (means + 1e-6)
    return float(2 * np.mean(-np.log(ratio) + ratio - 1))


def tweedie_nloglik(labels: Values, means: Values, power: float) -> float:
    """Mean negative log likelihood of the Tweedie distribution, up to what only labels and power change."""
    return float(np.mean(-labels * means ** (1 - power) / (1 - power) + means ** (2 - power) / (2 - power)))


def pseudo_huber(labels: Values, predicted: Values, slope: float) -> float:
    """Mean Pseudo-Huber loss."""
    return float(np.mean(slope**2 * (np.sqrt(1 + ((labels - predicted) / slope) ** 2) - 1)))


def _or_chance(metric: Callable[[Values, Values], float], chance: float) -> Callable[[Values, Values], float]:
    """A metric, and what chance would give where rows that are held out do not differ as far as squares can tell."""
    return lambda labels, scores: metric(labels, scores) if np.sum((labels - labels.mean()) ** 2) else chance


_BINARY = (
    Metric("logloss", log_loss),
    Metric("error", lambda labels, p: error_rate(labels, (p > 0.5).astype(np.float64))),
    Metric("auc", _or_chance(auc, 0.5), is_higher_better=True),
    Metric("aucpr", _or_chance(auc_pr, 0.5), is_higher_better=True),
    Metric("ks", _or_chance(ks, 0.0), is_higher_better=True),
    Metric("gini", _or_chance(gini, 0.0), is_higher_better=True),
    Metric("mae", mae),
    Metric("rmse", rmse),
)
_CLASSES = (
    Metric("mlogloss", log_loss),
    Metric("merror", lambda labels, p: error_rate(labels, p.argmax(axis=1).astype(np.float64))),
)
_RANKS = (Metric("ndcg", ndcg, is_higher_better=True), Metric("map", mean_average_precision, is_higher_better=True))
_NUMBERS = (Metric("rmse", rmse), Metric("mae", mae), Metric("poisson-nloglik", poisson_nloglik))


def _metrics(loss: Loss) -> dict[str, Metric]:
    """The metrics that score what a loss predicts, by name; the first one is the objective's own."""
    metrics: tuple[Metric, ...]
    match loss:
        case Several(each):
            metrics = tuple(_averaged(metric) for metric in _metrics(each).values())
        case Logistic():
            metrics = _BINARY
        case Softmax() | Ordinal():
            metrics = _CLASSES
        case Quantiles(alphas):
            metrics = (Metric("quantile", lambda labels, p: pinball(labels, p, alphas)),)
        case Cox():
            metrics = (Metric("cindex", lambda labels, p: concordance(labels, -p), is_higher_better=True),)
        case AcceleratedFailure():
            metrics = (Metric("cindex", concordance, is_higher_better=True),)
        case LambdaRank():
            metrics = _RANKS
        case _:
            metrics = (*_likelihood(loss), *_NUMBERS)
    return {metric.name: metric for metric in metrics}


def _averaged(metric: Metric) -> Metric:
    """The mean of a metric over labels and predictions of several outputs; of one, the metric itself."""

    def mean_over_outputs(labels: Values, predictions: Values) -> float:
        if labels.ndim == 1:
            return metric.of(labels, predictions)
        return float(np.mean([metric.of(*pair) for pair in zip(labels.T, predictions.T, strict=True)]))

    return replace(metric, of=mean_over_outputs)


def _likelihood(loss: Loss) -> tuple[Metric, ...]:
    """The metric of a loss of numbers that is the mean of that loss."""
    match loss:
        case Poisson():
            return (Metric("poisson-nloglik", poisson_nloglik),)
        case Gamma():
            return (Metric("gamma-deviance", gamma_deviance),)
        case Tweedie(power):
            return (Metric(f"tweedie-nloglik@{power:g}", partial(tweedie_nloglik, power=power)),)
        case PseudoHuber(slope):
            return (Metric("mphe", partial(pseudo_huber, slope=slope)),)
        case AbsoluteError():
            return (Metric("mae", mae),)
        case _:
            return ()


def metric_by_name(name: str, loss: Loss) -> Metric:
    """The evaluation metric of this name, XGBoost's where it has it.

    Raises
    ------
    ParameterError
        If there is none that scores what the loss predicts.
    """
    known = _metrics(loss)
    kind, _, most = name.partition("@")
    if isinstance(loss, LambdaRank) and kind in known and most.isdecimal() and int(most) > 0:
        rank_metric = ndcg if kind == "ndcg" else mean_average_precision
        return Metric(name, partial(rank_metric, most=int(most)), is_higher_better=True)
    if name not in known:
        use = f"use {', '.join(known)}{nearest(name, known)}"
        raise ParameterError(f"eval_metric {name!r} does not score what {loss.name} predicts; {use}")
    return known[name]


def default_metric(loss: Loss) -> str:
    """The metric by which an objective is judged unless told otherwise."""
    return next(iter(_metrics(loss)))


def main_metric(loss: Loss) -> Metric:
    """The first of an objective's usual metrics; where labels have a single value, what chance would give."""
    match loss:
        case Several(each):
            return _averaged(main_metric(each))
        case SquaredError():
            return Metric("r2", _or_chance(r2, 0.0), is_higher_better=True)
        case Softmax() | Ordinal():
            return Metric(
                "accuracy", lambda labels, p: float(np.mean(labels == p.argmax(axis=1))), is_higher_better=True
            )
    return _metrics(loss)["auc" if isinstance(loss, Logistic) else default_metric(loss)]


def evaluate(loss: Loss, labels: Values, predictions: Values) -> dict[str, float]:
    """The usual metrics of an objective, as files can hold them; the first one is the main one."""
    match loss:
        case Several(each):
            found = [evaluate(each, *pair) for pair in zip(labels.T, predictions.T, strict=True)]
            return {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        case SquaredError():
            return {"r2": finite(r2(labels, predictions)), "rmse": finite(rmse(labels, predictions))}
        case Softmax() | Ordinal():
            chosen = predictions.argmax(axis=1).astype(np.float64)
            return {"accuracy": 1 - error_rate(labels, chosen), "mlogloss": log_loss(labels, predictions)}
    names = ("auc", "error", "logloss") if isinstance(loss, Logistic) else tuple(_metrics(loss))[:2]
    return {name: _metrics(loss)[name].score(labels, predictions) for name in names}


def metrics_of(given: str | Metric | Sequence[str | Metric] | None, loss: Loss) -> tuple[Metric, ...]:
    """Metrics by name or as they are, each once, at its last place; without any, the loss's default.

    Raises
    ------
    ParameterError
    """
    named = (given,) if isinstance(given, (str, Metric)) else given or (default_metric(loss),)
    found = [one if isinstance(one, Metric) else metric_by_name(one, loss) for one in named]
    return tuple(reversed({one.name: one for one in reversed(found)}.values()))

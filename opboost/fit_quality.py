"""Fit of a model on labelled rows, for reports: metrics, learning curve, ROC, calibration, residuals.

They are statistics of labels, and stay with whoever holds those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.cell_grid import cells_of
from opboost.columns import OwnColumn
from opboost.metrics import default_metric, evaluate, gini, ks, metric_by_name
from opboost.trees.losses import AcceleratedFailure, Cox, LambdaRank, Logistic, Loss
from opboost.trees.tree import Ensemble
from opboost.vertical import TrainedTrees

# Rows that are looked at, spread evenly over all there are.
MOST_ROWS = 20_000

# Rows whose features are held at a time.
QUALITY_CHUNK_ROWS = 2_000

# Points of a curve.
MOST_POINTS = 51
CALIBRATION_BINS = 10
RESIDUAL_BINS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuality:
    """Metrics and curves of predictions against labels.

    Attributes
    ----------
    basis : str
        Which rows: ``training rows``, ``validation rows``, ``held-out records``, or how they were scored later.
    n_rows : int
    metrics : dict of str to float
    metric : str
        What `curve` shows.
    curve : tuple of (int, float)
        After so many rounds, the metric on these rows; empty for rows that were scored later.
    roc : tuple of (float, float)
        False and true positive rates, for two classes.
    calibration : tuple of (float, float, int)
        For two classes, rows in order of their prediction and divided evenly: mean prediction, share of label 1, rows.
    residuals : tuple of (float, float, int)
        For numbers: lower and upper edge of a bar of label minus prediction, and its rows.
    """

    basis: str
    n_rows: int
    metrics: dict[str, float]
    metric: str
    curve: tuple[tuple[int, float], ...] = ()
    roc: tuple[tuple[float, float], ...] = ()
    calibration: tuple[tuple[float, float, int], ...] = ()
    residuals: tuple[tuple[float, float, int], ...] = ()


def fit_quality(loss: Loss, labels: Values, predictions: Values, *, basis: str, metric: str) -> FitQuality | None:
    """Metrics of predictions against labels; None where labels have a single value."""
    # Label by label, as metrics compute it: of a constant one, the mean over a table may be rounded otherwise.
    of_labels = labels.reshape(len(labels), -1).T
    if len(labels) == 0 or not all(np.sum((one - one.mean()) ** 2) for one in of_labels):
        return None
    found = FitQuality(basis=basis, n_rows=len(labels), metrics=evaluate(loss, labels, predictions), metric=metric)
    if predictions.ndim == 2:
        return found
    if isinstance(loss, Logistic):
        more = {"gini": gini(labels, predictions), "ks": ks(labels, predictions)}
        return replace(
            found,
            metrics={**found.metrics, **more},
            roc=_roc(labels, predictions),
            calibration=_calibration(labels, predictions),
        )
    if isinstance(loss, (Cox, AcceleratedFailure, LambdaRank)):
        return found
    return replace(found, residuals=_residuals(labels - predictions))


def training_quality(
    trained: TrainedTrees, ensemble: Ensemble, labels: Values, is_held_out: NDArray[np.bool_] | None
) -> FitQuality | None:
    """Fit of a model on the rows that it was stopped early by, or on the training rows where there are none.

    Parameters
    ----------
    trained : TrainedTrees
        With the columns that it was trained on; a passive party's count as they were released.
    ensemble : Ensemble
        The same trees, bound.
    labels : ndarray of float64, shape (n_rows,)
    is_held_out : ndarray of bool, shape (n_rows,), or None
    """
    rows = np.arange(len(labels)) if is_held_out is None else np.flatnonzero(is_held_out)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64)]
    basis = "training rows" if is_held_out is None else "validation rows"
    return model_quality(
        ensemble, lambda indices: _features(trained, ensemble, rows[indices]), labels[rows], basis=basis
    )


def model_quality(
    ensemble: Ensemble, features: Callable[[NDArray[np.int64]], Values], labels: Values, *, basis: str
) -> FitQuality | None:
    """Fit of a model on rows, with the curve over its rounds; None where labels have a single value.

    Parameters
    ----------
    ensemble : Ensemble
    features : callable
        From indices of rows to their features, shape ``(n_indices, n_features)``.
    labels : ndarray of float64, shape (n_rows,)
    basis : str
        Which rows these are.
    """
    metric = metric_by_name(default_metric(ensemble.loss), ensemble.loss)
    ends, scores = _staged_scores(ensemble, features, len(labels))
    predictions = [ensemble.loss.predictions(stage) for stage in scores]
    final = fit_quality(ensemble.loss, labels, predictions[-1], basis=basis, metric=metric.name)
    if final is None:
        return None
    points = zip(ends, predictions, strict=True)
    return replace(final, curve=tuple((end, metric.score(labels, predicted)) for end, predicted in points))


def _staged_scores(
    ensemble: Ensemble, features: Callable[[NDArray[np.int64]], Values], n_rows: int
) -> tuple[list[int], NDArray[np.float64]]:
    """Scores after some of the rounds, shape ``(n_stages, n_rows, n_outputs)``, and which rounds."""
    n_outputs = ensemble.loss.n_outputs
    n_rounds = len(ensemble.trees) // n_outputs
    ends = np.unique(np.linspace(0, n_rounds, min(n_rounds + 1, MOST_POINTS)).round().astype(np.int64)).tolist()
    stages = [
        replace(
            ensemble,
            trees=ensemble.trees[begin * n_outputs : end * n_outputs],
            base_scores=ensemble.base_scores * (end == 0),
            offsets=ensemble.offsets if end == 0 else (),
        )
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    scores = np.empty((len(ends), n_rows, n_outputs))
    for first in range(0, n_rows, QUALITY_CHUNK_ROWS):
        chunk = np.arange(first, min(first + QUALITY_CHUNK_ROWS, n_rows))
        matrix = features(chunk)
        for stage, part in enumerate(stages):
            scores[stage, chunk] = part.scores(matrix)
    return ends, np.cumsum(scores, axis=0)


def _features(trained: TrainedTrees, ensemble: Ensemble, rows: NDArray[np.int64]) -> Values:
    """What the ensemble reads of rows that it was trained on, shape ``(n_rows, n_features)``."""
    own = {column.name: column for column in trained.columns if isinstance(column, OwnColumn)}
    ranked = {(c.owner, c.name): c for c in trained.columns if not isinstance(c, OwnColumn)}
    # Of ranks in a file, no more is read than these rows.
    ranks = {key: column.ranks[: len(column.ranks)][rows] for key, column in ranked.items()}
    matrix = np.empty((len(rows), len(ensemble.features)))
    for i, feature in enumerate(ensemble.features):
        if feature.owner is None:
            matrix[:, i] = own[feature.name].values[rows]
            continue
        key = feature.owner, feature.name
        if (cuts := ranked[key].cuts) is not None:
            matrix[:, i] = cells_of(ranks[key], ranked[key].n_ranks, cuts)
            continue
        assert feature.rank is not None
        is_missing = ranks[key] == ranked[key].n_ranks
        matrix[:, i] = ~np.where(is_missing, feature.missing_left, ranks[key] <= feature.rank)
    return matrix


def _residuals(residuals: Values) -> tuple[tuple[float, float, int], ...]:
    """A histogram's bars; none where residuals differ by a few steps of a float, which NumPy cannot divide."""
    try:
        heights, edges = np.histogram(residuals, bins=RESIDUAL_BINS)
    except ValueError:
        return ()
    return tuple(zip(edges[:-1].tolist(), edges[1:].tolist(), heights.tolist(), strict=True))


def _roc(labels: Values, predictions: Values) -> tuple[tuple[float, float], ...]:
    # scikit-learn has this, but to load it takes longer than to train a small model.
    order = np.argsort(-predictions, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(predictions[order])), len(order) - 1)
    n_positive = np.cumsum(labels[order])[ends]
    true_positive = np.append(0.0, n_positive / n_positive[-1])
    n_negative = ends + 1 - n_positive
    false_positive = np.append(0.0, n_negative / n_negative[-1])
    at = np.linspace(0, 1, MOST_POINTS)
    return tuple(zip(at.tolist(), np.interp(at, false_positive, true_positive).tolist(), strict=True))


def _calibration(labels: Values, predictions: Values) -> tuple[tuple[float, float, int], ...]:
    order = np.argsort(predictions, kind="stable")
    parts: Sequence[NDArray[np.int64]] = [part for part in np.array_split(order, CALIBRATION_BINS) if len(part)]
    return tuple((float(predictions[part].mean()), float(labels[part].mean()), len(part)) for part in parts)

"""Uplift: how much better a joint model scores than the active party's own, on records that neither was trained on.

And what each column of a passive party adds to that: by how much the score falls if the column's answers are exchanged
between the records at random (permutation importance).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Mask, Values
from opboost.metrics import main_metric
from opboost.trees.losses import LambdaRank, Loss
from opboost.trees.losses.ranking import ndcg_of_groups
from opboost.trees.tree import Ensemble

N_RESAMPLES = 500

# Of the resampled uplifts, these quantiles are the ends of the interval.
_ENDS = 0.025, 0.975


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplift:
    """Scores of two models on the same held-out records.

    Attributes
    ----------
    metric : str
    n_rows : int
        Records that were scored.
    n_held_out : int
        Records that were held out.
    n_chose : int
        Those of them that are not scored, because they chose what the model was trained on or when to stop.
    alone, joint : float or None
        The metric of the active party's own model and of the joint one; None where it could not be measured.
    uplift : float or None
        By how much the joint model is better; negative if it is worse.
    low, high : float or None
        Ends of the uplift's 95 % bootstrap interval.
    reason : str
        Why something could not be measured; empty if all was.
    """

    metric: str
    n_rows: int
    n_held_out: int
    alone: float | None = None
    joint: float | None = None
    uplift: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    n_chose: int = 0


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """What columns of a passive party add to the score of held-out records.

    Attributes
    ----------
    owner : str
    columns : tuple of str
    uplift : Uplift
        `alone` is the score with their answers exchanged between records, `joint` the one with the right answers.
    """

    owner: str
    columns: tuple[str, ...]
    uplift: Uplift


def use_of(ensemble: Ensemble, matrix: Values, labels: Values, inputs: Sequence[int], *, seed: int) -> Uplift:
    """What inputs of an ensemble add on held-out records; all of them are exchanged together.

    Parameters
    ----------
    ensemble : Ensemble
    matrix : ndarray of float64, shape (n_rows, n_features)
    labels : ndarray of float64, shape (n_rows,)
    inputs : sequence of int
    seed : int
    """
    exchanged = matrix.copy()
    order = np.random.default_rng(seed).permutation(len(matrix))
    exchanged[:, list(inputs)] = matrix[order][:, list(inputs)]
    scores = [ensemble.predict(rows) for rows in (exchanged, matrix)]
    return measure_uplift(ensemble.loss, labels, *scores, is_scored=np.ones(len(labels), np.bool_), seed=seed)


def measure_uplift(loss: Loss, labels: Values, alone: Values, joint: Values, *, is_scored: Mask, seed: int) -> Uplift:
    """Compare predictions of two models; records that the joint model could not score are left out of both.

    Parameters
    ----------
    loss : Loss
    labels : ndarray of float64, shape (n_rows,)
    alone, joint : ndarray of float64, shape (n_rows,) or (n_rows, n_outputs)
    is_scored : ndarray of bool, shape (n_rows,)
        Which records have a joint prediction.
    seed : int
        Of the bootstrap: records, or the groups in which they are ranked, are drawn with replacement, the same for
        both models.
    """
    metric, n_scored = main_metric(loss), int(is_scored.sum())
    sign = 1 if metric.is_higher_better else -1
    uplift = Uplift(metric=metric.name, n_rows=n_scored or len(labels), n_held_out=len(labels))
    if len(np.unique(labels[is_scored] if n_scored else labels)) < 2:
        return replace(uplift, reason="the labels of the held-out records have a single value")
    if not n_scored:
        return replace(uplift, alone=metric.score(labels, alone))
    labels, alone, joint = labels[is_scored], alone[is_scored], joint[is_scored]
    rng, models = np.random.default_rng(seed), (alone, joint)
    # Rows of a group belong together: groups are drawn, and a metric is the mean of theirs.
    group_scores = [ndcg_of_groups(labels, model) for model in models] if isinstance(loss, LambdaRank) else None
    n_drawn = n_scored if group_scores is None else len(group_scores[0])
    samples = [np.arange(n_drawn), *(rng.integers(0, n_drawn, n_drawn) for _ in range(N_RESAMPLES))]
    if group_scores is not None:
        scores = np.array([[values[drawn].mean() for drawn in samples] for values in group_scores])
    else:
        scores = np.array([[metric.score(labels[rows], model[rows]) for rows in samples] for model in models])
    uplifts = sign * (scores[1] - scores[0])
    low, high = np.quantile(uplifts[1:], _ENDS).tolist()
    return replace(uplift, alone=scores[0, 0], joint=scores[1, 0], uplift=uplifts[0], low=low, high=high)

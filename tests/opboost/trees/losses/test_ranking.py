"""Losses and metrics of rankings; gradients are compared with a twin in `kernels/test_pairs.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from opboost.errors import DataError, ParameterError
from opboost.metrics import default_metric, main_metric, metric_by_name
from opboost.trees.losses import loss_by_name
from opboost.trees.losses.ranking import Groups, LambdaRank, PairwiseRank, group_numbers, mean_average_precision, ndcg

RNG = np.random.default_rng(5)
NUMBERS = RNG.integers(0, 9, 120).astype(float)
DEGREES = RNG.integers(0, 4, 120) * (NUMBERS != 3)
LABELS, SCORES = np.column_stack([DEGREES, NUMBERS]), RNG.normal(size=120)


def test_groups_hold_their_rows_in_order_whatever_the_order_of_the_table() -> None:
    groups = Groups.of(NUMBERS)
    for number, begin, end in zip(np.unique(NUMBERS), groups.begins[:-1], groups.begins[1:], strict=True):
        assert groups.rows[begin:end].tolist() == np.flatnonzero(number == NUMBERS).tolist()
    in_order = Groups.of(np.sort(NUMBERS))
    assert in_order.rows.tolist() == list(range(120))
    np.testing.assert_array_equal(in_order.begins, groups.begins)
    assert groups.weights(NUMBERS).tolist() == np.unique(NUMBERS).tolist()


@pytest.mark.parametrize("most", [None, 1, 4])
def test_the_discounted_gain_is_scikit_learns_group_by_group(most: int | None) -> None:
    found = []
    for number in np.unique(NUMBERS):
        mine = number == NUMBERS
        gains = 2.0 ** DEGREES[mine] - 1
        found.append(ndcg_score([gains], [SCORES[mine]], k=most) if gains.any() else 1.0)
    assert ndcg(LABELS, SCORES, most or np.inf) == pytest.approx(np.mean(found))
    assert metric_by_name("ndcg" + (f"@{most}" if most else ""), LambdaRank()).of(LABELS, SCORES) == ndcg(
        LABELS, SCORES, most or np.inf
    )


def test_the_average_precision_is_scikit_learns_group_by_group() -> None:
    each = [(DEGREES[mine] > 0, SCORES[mine]) for mine in (number == NUMBERS for number in np.unique(NUMBERS))]
    found = [average_precision_score(*one) if one[0].any() else 1.0 for one in each]
    assert mean_average_precision(LABELS, SCORES) == pytest.approx(np.mean(found))
    assert mean_average_precision(LABELS, -SCORES) != pytest.approx(np.mean(found))


def test_metrics_of_rankings_have_names() -> None:
    assert default_metric(LambdaRank()) == main_metric(PairwiseRank()).name == "ndcg"
    for name in ("ndcg@0", "ndcg@", "ndcg@x", "auc@3", "rmse"):
        with pytest.raises(ParameterError, match="does not score"):
            metric_by_name(name, LambdaRank())


@pytest.mark.parametrize(
    "labels", [np.ones(3), np.ones((3, 3)), [[0.5, 1]], [[-1, 1]], [[32, 1]], [[1, np.nan]]], ids=str
)
def test_other_labels_are_refused(labels: Any) -> None:
    LambdaRank().check_labels(LABELS)
    with pytest.raises(DataError, match="needs"):
        LambdaRank().check_labels(np.asarray(labels, float))


def test_a_group_has_a_name() -> None:
    assert group_numbers(["b", "a", "b"]).tolist() == [0, 1, 0]
    with pytest.raises(DataError, match="1 rows have no group"):
        group_numbers(np.array(["b", None], object))


def test_settings_name_the_loss() -> None:
    loss = PairwiseRank(7)
    assert loss_by_name(loss.name, 0, **loss.settings) == loss
    for n_pairs in (0, 10**7):
        with pytest.raises(ParameterError, match="lambdarank_num_pair_per_sample"):
            LambdaRank(n_pairs)

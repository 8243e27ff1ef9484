"""The best cut of every node against a twin that lists all cuts one by one, in the order in which they are met.

Both sides compute the same doubles in the same order, so nothing here has a tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.cuts import best_cuts, category_order, no_cuts

N_VALUE_BINS = np.array([1, 2, 5])
OFFSETS = np.concatenate([[0], np.cumsum(N_VALUE_BINS + 1)])
STEPS = (2.0**-10, 2.0**-12)
SEEDS = st.integers(0, 2**32 - 1)
NUMBERS, ORDERED, ALONE = 0, 1, 2
N_THREADS = 2

pytestmark = pytest.mark.usefixtures("one_thread")

Found = tuple[float, int, int, bool, tuple[int, int]]


@dataclass(frozen=True)
class Rules:
    modes: tuple[int, ...] = (NUMBERS, NUMBERS, NUMBERS)
    monotone: tuple[int, ...] = (0, 0, 0)
    lower: float = -math.inf
    upper: float = math.inf
    is_bounded: bool = False
    reg_lambda: float = 1.0
    reg_alpha: float = 0.0
    min_child_weight: float = 0.0


def _at(grad: float, hess: float, rules: Rules) -> tuple[float, float]:
    """The bounded leaf value of a node and its score."""
    slope = np.sign(grad) * max(abs(grad) - rules.reg_alpha, 0.0)
    value = min(max(-slope / (hess + rules.reg_lambda), rules.lower), rules.upper)
    if not rules.is_bounded:
        return value, slope * slope / (hess + rules.reg_lambda)
    return value, -(2 * grad * value + (hess + rules.reg_lambda) * value * value)


def _of_both(left: tuple[float, float], right: tuple[float, float], rules: Rules) -> float:
    """The sum of two scores without bounds, with one division, so that ties end as in the loop."""
    (square, weight), (other_square, other_weight) = (
        (max(abs(grad) - rules.reg_alpha, 0.0) ** 2, hess + rules.reg_lambda) for grad, hess in (left, right)
    )
    return (square * other_weight + other_square * weight) / (weight * other_weight)


def _mean(sums: np.ndarray, reg_lambda: float) -> float:
    """Of no rows it is zero; of rows that weigh nothing, beyond all others where nothing is added to the weight."""
    if sums[0] == 0:
        return 0.0
    weight = sums[1] * STEPS[1] + reg_lambda
    return float(sums[0] * STEPS[0] / weight) if weight else math.copysign(math.inf, sums[0])


def _met(column: np.ndarray, mode: int, reg_lambda: float) -> list[tuple[int, bool, np.ndarray]]:
    """Every cut of a column in the order in which it is met: the cut, the way of missing, the sums on the left."""
    values, missing = column[:, :-1].T, column[:, -1]
    if mode != NUMBERS:
        order = sorted(range(len(values)), key=lambda b: -_mean(values[b], reg_lambda))
        values = values[order]
    n, has_missing = len(values), bool(missing.any())
    cuts = range(n if has_missing or mode == ALONE else n - 1)
    lefts = [values[cut : cut + 1] if mode == ALONE else values[: cut + 1] for cut in cuts]
    met = [(cut, False, lefts[cut].sum(axis=0)) for cut in cuts]
    if has_missing:
        met += [(cut, True, lefts[cut].sum(axis=0) + missing) for cut in reversed(cuts)]
    if has_missing and mode == NUMBERS:
        met.append((-1, True, missing))
    return met


def _best_of_column(column: np.ndarray, total: np.ndarray, mode: int, direction: int, rules: Rules) -> Found:
    total_g, total_h = float(total[0] * STEPS[0]), float(total[1] * STEPS[1])
    best: Found = (-math.inf, 0, 0, False, (0, 0))
    for cut, missing_left, left in _met(column, mode, rules.reg_lambda):
        g, h = float(left[0] * STEPS[0]), float(left[1] * STEPS[1])
        other_g, other_h = total_g - g, total_h - h
        if min(h, other_h) <= 0 or min(h, other_h) < rules.min_child_weight:
            continue
        (left_value, left_score), (right_value, right_score) = _at(g, h, rules), _at(other_g, other_h, rules)
        if rules.is_bounded and direction * (right_value - left_value) < 0:
            continue
        score = left_score + right_score if rules.is_bounded else _of_both((g, h), (other_g, other_h), rules)
        if score > best[0]:
            best = (score, 0, cut, missing_left, (int(left[0]), int(left[1])))
    return best


def _of_node(total: np.ndarray, rules: Rules) -> float:
    """The score of a node that is not split."""
    grad, hess = float(total[0] * STEPS[0]), float(total[1] * STEPS[1])
    return _at(grad, hess, rules)[1] if hess + rules.reg_lambda > 0 else 0.0


def _twin(histogram: np.ndarray, total: np.ndarray, allowed: np.ndarray, rules: Rules) -> Found | None:
    """The first of the best cuts of the first of the best columns; None if there is no cut."""
    best: Found = (-math.inf, 0, 0, False, (0, 0))
    for c in np.flatnonzero(allowed):
        column = histogram[:, OFFSETS[c] : OFFSETS[c + 1]]
        score, _, *rest = _best_of_column(column, total, rules.modes[c], rules.monotone[c], rules)
        if score > best[0]:
            best = (score, int(c), *rest)
    return (best[0] - _of_node(total, rules), *best[1:]) if best[0] > -math.inf else None


def _running(histograms: np.ndarray) -> np.ndarray:
    """Running sums of every column."""
    parts = (histograms[..., begin:end].cumsum(axis=-1) for begin, end in pairwise(OFFSETS))
    return np.concatenate(list(parts), axis=-1)


def _run(
    asked: np.ndarray,
    totals: np.ndarray,
    allowed: np.ndarray,
    rules: Rules,
    *,
    parents: np.ndarray | None = None,
    parent_of: np.ndarray | None = None,
    rest: np.ndarray | None = None,
) -> list[Found | None]:
    before, asked, best = asked, asked.copy(), no_cuts(len(totals))
    nothing = np.empty((0, *asked.shape[1:]), np.int64)
    bounds = np.array([rules.lower]), np.array([rules.upper]), rules.is_bounded
    best_cuts(
        asked,
        nothing if parents is None else _running(parents),
        np.zeros(0, np.int64) if parent_of is None else parent_of,
        nothing if rest is None else rest,
        totals,
        (
            OFFSETS,
            allowed,
            np.array(rules.modes, np.int8),
            np.array(rules.monotone, np.int8),
            *bounds,
            *STEPS,
            rules.reg_lambda,
            rules.reg_alpha,
            rules.min_child_weight,
        ),
        N_THREADS,
        best,
    )
    gains, columns, cuts, missing_left, left_sums = best
    np.testing.assert_array_equal(asked, _running(before))
    sums = [(int(g), int(h)) for g, h in left_sums]
    found = zip(gains.tolist(), columns.tolist(), cuts.tolist(), missing_left.tolist(), sums, strict=True)
    return [cut if cut[0] > -math.inf else None for cut in found]


def _histogram(rows: list[int], unit: int, rng: np.random.Generator) -> np.ndarray:
    """Gradients of -unit, 0 or unit and few bins make ties common."""
    histogram = np.zeros((2, OFFSETS[-1]), np.int64)
    for kind in rows:
        bins = OFFSETS[:-1] + rng.integers(0, N_VALUE_BINS + 1)
        histogram[0, bins] += (kind % 3 - 1) * unit
        histogram[1, bins] += unit * (kind > 1)
    return histogram


NODES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=12), min_size=1, max_size=3)
UNITS = st.sampled_from([1, 3, 1000])
LAMBDAS = st.sampled_from([0.0, 1.0])
WEIGHTS = st.sampled_from([0.0, 2 * STEPS[1], 1.0])


def _total(histogram: np.ndarray) -> np.ndarray:
    return histogram[:, : OFFSETS[1]].sum(axis=1)


def _allowed(n_nodes: int, rng: np.random.Generator) -> np.ndarray:
    """The same columns for all nodes, or others for each."""
    return rng.random((1 if rng.random() < 0.5 else n_nodes, 3)) < 0.8


@settings(max_examples=300, deadline=None)
@given(NODES, UNITS, LAMBDAS, WEIGHTS, SEEDS)
def test_the_best_cut_is_the_first_of_the_best(
    nodes: list[list[int]], unit: int, reg_lambda: float, min_child_weight: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = np.array([_histogram(rows, unit, rng) for rows in nodes])
    totals, allowed = np.array([_total(histogram) for histogram in asked]), _allowed(len(nodes), rng)
    rules = Rules(reg_lambda=reg_lambda, min_child_weight=min_child_weight)
    expected = [
        _twin(histogram, total, allowed[k % len(allowed)], rules)
        for k, (histogram, total) in enumerate(zip(asked, totals, strict=True))
    ]
    assert _run(asked, totals, allowed, rules) == expected


@settings(max_examples=300, deadline=None)
@given(
    NODES, UNITS, LAMBDAS, WEIGHTS, st.lists(st.sampled_from([NUMBERS, ORDERED, ALONE]), min_size=3, max_size=3), SEEDS
)
def test_the_best_cut_among_categories_is_the_first_of_the_best(
    nodes: list[list[int]], unit: int, reg_lambda: float, min_child_weight: float, modes: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = np.array([_histogram(rows, unit, rng) for rows in nodes])
    totals, allowed = np.array([_total(histogram) for histogram in asked]), _allowed(len(nodes), rng)
    rules = Rules(modes=tuple(modes), reg_lambda=reg_lambda, min_child_weight=min_child_weight)
    expected = [
        _twin(histogram, total, allowed[k % len(allowed)], rules)
        for k, (histogram, total) in enumerate(zip(asked, totals, strict=True))
    ]
    assert _run(asked, totals, allowed, rules) == expected


@settings(max_examples=300, deadline=None)
@given(
    NODES,
    UNITS,
    LAMBDAS,
    st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3),
    st.sampled_from([(-math.inf, math.inf), (-0.5, 0.5), (0.0, math.inf), (-0.1, 0.0)]),
    SEEDS,
)
def test_the_best_cut_within_bounds_is_the_first_of_the_best_that_keeps_the_direction(
    nodes: list[list[int]], unit: int, reg_lambda: float, monotone: list[int], bounds: tuple[float, float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = np.array([_histogram(rows, unit, rng) for rows in nodes])
    totals, allowed = np.array([_total(histogram) for histogram in asked]), _allowed(len(nodes), rng)
    rules = Rules(monotone=tuple(monotone), lower=bounds[0], upper=bounds[1], is_bounded=True, reg_lambda=reg_lambda)
    expected = [
        _twin(histogram, total, allowed[k % len(allowed)], rules)
        for k, (histogram, total) in enumerate(zip(asked, totals, strict=True))
    ]
    assert _run(asked, totals, allowed, rules) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(*[st.lists(st.integers(0, 7), min_size=1, max_size=9)] * 2), min_size=1, max_size=3),
    st.booleans(),
    SEEDS,
)
def test_a_siblings_histogram_is_what_the_parents_leaves(
    pairs: list[tuple[list[int], list[int]]], has_room: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked, others = (np.array([_histogram(pair[side], 5, rng) for pair in pairs]) for side in (0, 1))
    order = rng.permutation(len(pairs) + 1)[: len(pairs)]
    parents = np.full((len(pairs) + 1, *asked.shape[1:]), 77, np.int64)
    parents[order] = asked + others
    rest = np.empty_like(asked) if has_room else None
    totals = np.array([_total(histogram) for histogram in (*asked, *others)])
    allowed = np.ones((1, 3), np.bool_)
    found = _run(asked, totals, allowed, Rules(), parents=parents, parent_of=order, rest=rest)
    assert found == [
        _twin(histogram, total, allowed[0], Rules()) for histogram, total in zip((*asked, *others), totals, strict=True)
    ]
    if rest is not None:
        np.testing.assert_array_equal(rest, _running(others))


def _of_last_column(values: list[int], missing: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradient sums per bin of the column of five value bins; every bin weighs 1."""
    histogram = np.zeros((1, 2, OFFSETS[-1]), np.int64)
    histogram[0, 0, OFFSETS[2] :] = np.array([*values, missing]) / STEPS[0]
    histogram[0, 1, OFFSETS[2] :] = 1 / STEPS[1]
    histogram[0, 1, -1] *= missing != 0
    return histogram, histogram.sum(axis=2)


LAST = np.array([[False, False, True]])


@pytest.mark.parametrize(
    ("values", "missing", "cut", "missing_left"),
    [
        ([-1, -1, 1, 1, 1], 0, 1, False),
        ([-1, -1, 1, 1, 1], 5, 1, False),
        ([-1, -1, 1, 1, 1], -5, 1, True),
        ([1, 1, 1, 1, 1], -5, 4, False),
        ([1, -1, 1, -1, 1], 0, 0, False),
        ([-1, 0, 0, 0, 1], 0, 0, False),
    ],
    ids=["no missing", "missing right", "missing left", "missing against present", "first of equals", "mirrored tie"],
)
def test_missing_goes_to_the_side_where_the_gain_is_highest(
    values: list[int], missing: int, cut: int, missing_left: bool
) -> None:
    histogram, total = _of_last_column(values, missing)
    (found,) = _run(histogram, total, LAST, Rules())
    assert found is not None
    assert found[1:4] == (2, cut, missing_left)


def test_a_node_without_an_allowed_cut_has_a_gain_of_minus_infinity() -> None:
    histogram, total = _of_last_column([-1, 1, 0, 0, 0], 0)
    assert _run(histogram, total, LAST, Rules(min_child_weight=100.0)) == [None]
    assert _run(histogram, total, np.zeros((1, 3), np.bool_), Rules()) == [None]


def test_categories_are_put_in_the_falling_order_of_their_mean_gradient_and_empty_ones_at_zero() -> None:
    grads, hessians = np.array([4, 0, -4, 1, 1, -99]) * 1024, np.array([1, 0, 2, 1, 1, 1]) * 4096
    assert category_order(grads, hessians, *STEPS, (0.0, 0.0)).tolist() == [0, 3, 4, 1, 2]


def test_a_category_that_weighs_nothing_and_is_drawn_to_zero_has_a_mean_of_zero() -> None:
    grads, hessians = np.array([-4, 1, 4, 0]) * 1024, np.array([1, 0, 1, 0]) * 4096
    assert category_order(grads, hessians, *STEPS, (0.0, 1.0)).tolist() == [2, 1, 0]


@pytest.mark.parametrize("mode", [NUMBERS, ORDERED, ALONE])
def test_a_node_that_weighs_nothing_has_no_cut(mode: int) -> None:
    """As a node of rows that were all left out of the round, with no least weight of a child."""
    histogram = np.zeros((1, 2, OFFSETS[-1]), np.int64)
    for grad in (0, -3):
        histogram[0, 0, OFFSETS[:-1]] = grad
        rules = Rules(modes=(mode, mode, mode))
        assert _run(histogram, np.array([[grad, 0]]), np.ones((1, 3), np.bool_), rules) == [None]


def test_a_category_alone_is_told_from_all_others_and_ordered_ones_are_cut_between() -> None:
    histogram, total = _of_last_column([-4, 9, -4, -4, 9], 0)
    (alone,), (ordered,) = (
        _run(histogram, total, LAST, Rules(modes=(NUMBERS, NUMBERS, mode))) for mode in (ALONE, ORDERED)
    )
    assert alone is not None
    assert ordered is not None
    # In order of their means the categories are 1, 4, 0, 2, 3: alone the first stands out, cut behind the second.
    assert (alone[2], alone[4][0]) == (0, 9 / STEPS[0])
    assert (ordered[2], ordered[4][0]) == (1, 18 / STEPS[0])
    assert ordered[0] > alone[0]

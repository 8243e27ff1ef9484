# mypy: disable-error-code="no-untyped-def,misc,call-arg,var-annotated"
"""The best cut of every node by XGBoost's gain.

A cut divides a column's bins, in their order, into left and right. Missing values, the column's last bin, go right
when cuts are met from low to high and left when they are met from high to low, as in XGBoost's `hist`; ties go to the
cut met first and to the lower column. Categories are put in order of their mean gradient first, or stand alone where
they are few.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.nodes import shrunk, widest
from opboost.trees.kernels.packing import OPTIONS, PARALLEL, bits_of_float, float_of

# XGBoost's smallest accepted gain.
MIN_GAIN = 1e-6

# No child's Hessian is zero: all that are not are many steps of a grid, hence larger than the smallest normal float64.
_LEAST_WEIGHT = float(np.finfo(np.float64).tiny)


@njit(**PARALLEL)
def best_cuts(
    asked, parents, parent_of, rest, totals, offsets, allowed, modes, monotone, lower, upper, is_bounded,
    grad_step, hess_step, penalty, min_child_weight, gains, columns, cuts, missing_left, left_sums,
):  # fmt: skip
    """Choose among all allowed columns, for nodes whose histograms were asked for and for their siblings.

    The first ``len(asked)`` nodes have the histograms `asked`, whose sums of every column are replaced by running ones.
    If there are `parents`, as many siblings follow, whose running sums are the parents' less these; they are kept in
    `rest` if it has room. ``gains`` stays at minus infinity where no cut is allowed. Limits that are the same for all
    nodes are given once. ``modes[column]`` is 0 for numbers, 1 for categories put in order, and 2 for categories that
    each stand alone. `penalty` is reg_lambda and reg_alpha.
    """
    n_asked, n_columns = len(asked), len(offsets) - 1
    found = np.full((len(totals), n_columns), -np.inf)
    found_cuts, found_missing = np.empty((2, len(totals), n_columns), dtype=np.int32)
    found_sums = np.empty((len(totals), n_columns, 2), dtype=np.int64)
    width = widest(offsets)
    for task in prange(n_asked * n_columns):
        k, c = task // n_columns, task % n_columns
        begin, end = offsets[c], offsets[c + 1]
        room, gains_room = np.empty((2, width), dtype=np.int64), np.empty(width)
        grads, hessians = asked[k, 0, begin:end], asked[k, 1, begin:end]
        _accumulate(grads, hessians)
        for side in range(1 if len(parents) == 0 else 2):
            node = k + side * n_asked
            if side == 1:
                parent = parents[parent_of[k]]
                other_g = rest[k, 0, begin:end] if len(rest) else room[0, : end - begin]
                other_h = rest[k, 1, begin:end] if len(rest) else room[1, : end - begin]
                grads = _less(parent[0, begin:end], grads, other_g)
                hessians = _less(parent[1, begin:end], hessians, other_h)
            if allowed[node % len(allowed), c]:
                found[node, c], found_cuts[node, c], found_missing[node, c] = _best_of_column(
                    grads, hessians, totals[node], modes[c], monotone[c], lower[node % len(lower)],
                    upper[node % len(upper)], is_bounded, grad_step, hess_step, penalty, min_child_weight,
                    found_sums[node, c], gains_room,
                )  # fmt: skip
    for node in range(len(totals)):
        best = 0
        for c in range(1, n_columns):
            if found[node, c] > found[node, best]:
                best = c
        gains[node], columns[node] = found[node, best], best
        cuts[node], missing_left[node] = found_cuts[node, best], found_missing[node, best] == 1
        left_sums[node] = found_sums[node, best]


@njit(**OPTIONS)
def _accumulate(grads, hessians):
    """Replace sums per bin by running sums."""
    g, h = np.int64(0), np.int64(0)
    for b in range(len(grads)):
        g += grads[b]
        h += hessians[b]
        grads[b], hessians[b] = g, h


@njit(**OPTIONS)
def _less(parent, child, out):
    """The running sums of the other child."""
    for b in range(len(out)):
        out[b] = parent[b] - child[b]
    return out


@njit(**OPTIONS)
def _best_of_column(
    grads, hessians, total, mode, direction, lower, upper, is_bounded, grad_step, hess_step, penalty,
    min_child_weight, left_sums, gains_room,
):  # fmt: skip
    """Gain, cut and way of missing of one column's best cut, by its running sums; writes the left child's sums."""
    total_g, total_h = total[0] * grad_step, total[1] * hess_step
    if total_h < 2 * min_child_weight:
        return -np.inf, 0, 0
    n_bins = len(grads) - 1
    missing_g, missing_h = grads[n_bins] - grads[n_bins - 1], hessians[n_bins] - hessians[n_bins - 1]
    if mode:
        grads, hessians = _reordered(grads, hessians, mode == 2, grad_step, hess_step, penalty)
    has_missing = missing_g != 0 or missing_h != 0
    n_cuts = n_bins if has_missing or mode == 2 else n_bins - 1
    best, best_cut, best_missing = -np.inf, 0, 0
    left_g, left_h, gains = grads[:n_cuts], hessians[:n_cuts], gains_room[:n_cuts]
    for way in range(2 if has_missing else 1):
        first_g, first_h = way * missing_g, way * missing_h
        if is_bounded:
            highest = _bounded_gains(
                left_g, left_h, first_g, first_h, total_g, total_h, direction, lower, upper, grad_step, hess_step,
                penalty, min_child_weight, gains,
            )  # fmt: skip
        else:
            _gains(
                left_g, left_h, first_g, first_h, total_g, total_h, grad_step, hess_step, penalty, min_child_weight,
                gains,
            )  # fmt: skip
            highest = _max(gains)
        if highest > best:
            best, best_missing = highest, way
            best_cut = _first(gains, highest) if way == 0 else _last(gains, highest)
            left_sums[0], left_sums[1] = left_g[best_cut] + first_g, left_h[best_cut] + first_h
    if has_missing and direction != 0:
        # Missing left and all present right is not the mirrored split where predictions must rise or fall.
        nothing, gain = np.zeros(1, np.int64), np.empty(1)
        _bounded_gains(
            nothing, nothing, missing_g, missing_h, total_g, total_h, direction, lower, upper, grad_step, hess_step,
            penalty, min_child_weight, gain,
        )  # fmt: skip
        if gain[0] > best:
            best, best_cut, best_missing = gain[0], -1, 1
            left_sums[0], left_sums[1] = missing_g, missing_h
    return best - _score(total_g, total_h, penalty, lower, upper, is_bounded), best_cut, best_missing


@njit(**OPTIONS)
def _reordered(grads, hessians, is_alone, grad_step, hess_step, penalty):
    """What is left of each cut of categories in their order, from running sums in the order of the bins."""
    grads, hessians = sums_of_bins(grads), sums_of_bins(hessians)
    order = category_order(grads, hessians, grad_step, hess_step, penalty)
    grads, hessians = grads[order], hessians[order]
    if not is_alone:
        _accumulate(grads, hessians)
    return grads, hessians


@njit(**OPTIONS)
def sums_of_bins(running):
    """Sums per bin, from running sums."""
    sums = running.copy()
    sums[1:] -= running[:-1]
    return sums


@njit(**OPTIONS)
def _gains(
    left_g, left_h, first_g, first_h, total_g, total_h, grad_step, hess_step, penalty, min_child_weight, gains
):  # fmt: skip
    """Score of both children of every cut; minus infinity where one is too light. There is no branch in the loops.

    To the left sums of every cut, `first_g` and `first_h` are added.
    """
    reg_lambda, reg_alpha = penalty
    least = max(min_child_weight, _LEAST_WEIGHT)
    if reg_alpha == 0:
        for cut in range(len(gains)):
            g, h = (left_g[cut] + first_g) * grad_step, (left_h[cut] + first_h) * hess_step
            gains[cut] = _score_of_children(g, total_g - g, h, total_h - h, reg_lambda, least)
    else:
        for cut in range(len(gains)):
            g, h = (left_g[cut] + first_g) * grad_step, (left_h[cut] + first_h) * hess_step
            left, right = max(abs(g) - reg_alpha, 0.0), max(abs(total_g - g) - reg_alpha, 0.0)
            gains[cut] = _score_of_children(left, right, h, total_h - h, reg_lambda, least)


@njit(**OPTIONS)
def _score_of_children(left, right, h, other_h, reg_lambda, least):
    """Score of two children, whose gradients are `left` and `right`; both take one division, the slowest step."""
    weight, other_weight = h + reg_lambda, other_h + reg_lambda
    share = 1.0 / (weight * other_weight)
    score = left * left * (other_weight * share) + right * right * (weight * share)
    return score if (h >= least) & (other_h >= least) else -np.inf


@njit(**OPTIONS)
def _max(scores):
    """The largest score; each is positive, zero or minus infinity.

    Such floats have the order of their bits, which the compiler compares several at once (10 times faster).
    """
    bits = scores.view(np.int64)
    highest = bits_of_float(-np.inf)
    for cut in range(len(bits)):
        highest = max(highest, bits[cut])
    return float_of(highest)


@njit(**OPTIONS)
def _first(gains, wanted):
    """Where a gain is met first; all are looked at, which the compiler does several at once."""
    found = len(gains)
    for cut in range(len(gains)):
        found = min(found, cut if gains[cut] == wanted else len(gains))
    return found


@njit(**OPTIONS)
def _last(gains, wanted):
    found = -1
    for cut in range(len(gains)):
        found = max(found, cut if gains[cut] == wanted else -1)
    return found


@njit(**OPTIONS)
def _bounded_gains(
    left_g, left_h, first_g, first_h, total_g, total_h, direction, lower, upper, grad_step, hess_step, penalty,
    min_child_weight, gains,
):  # fmt: skip
    """The same with bounded leaf values, minus infinity where they contradict the column's direction; the highest."""
    highest = -np.inf
    reg_lambda, reg_alpha = penalty
    for cut in range(len(gains)):
        g, h = (left_g[cut] + first_g) * grad_step, (left_h[cut] + first_h) * hess_step
        other_g, other_h = total_g - g, total_h - h
        gains[cut] = -np.inf
        if h > 0 and other_h > 0 and h >= min_child_weight and other_h >= min_child_weight:
            left = min(max(-shrunk(g, reg_alpha) / (h + reg_lambda), lower), upper)
            right = min(max(-shrunk(other_g, reg_alpha) / (other_h + reg_lambda), lower), upper)
            if direction * (right - left) >= 0:
                gains[cut] = _score_at(g, h, reg_lambda, left) + _score_at(other_g, other_h, reg_lambda, right)
                highest = max(highest, gains[cut])
    return highest


@njit(**OPTIONS)
def _score(grad, hess, penalty, lower, upper, is_bounded):
    reg_lambda, reg_alpha = penalty
    if hess + reg_lambda <= 0:
        return 0.0
    if is_bounded:
        return _score_at(grad, hess, reg_lambda, min(max(-shrunk(grad, reg_alpha) / (hess + reg_lambda), lower), upper))
    return shrunk(grad, reg_alpha) ** 2 / (hess + reg_lambda)


@njit(**OPTIONS)
def _score_at(grad, hess, reg_lambda, value):
    """Twice the drop of the loss's quadratic approximation for a leaf of this value."""
    return -(2 * grad * value + (hess + reg_lambda) * value * value)


@njit(**OPTIONS)
def category_order(grads, hessians, grad_step, hess_step, penalty):
    """The bins of a categorical column by falling mean gradient, that of an empty one being 0; without the missing bin.

    As in XGBoost, categories that training has not seen then go with those of the lowest mean gradient.
    """
    means = np.zeros(len(grads) - 1)
    for b in range(len(means)):
        grad = shrunk(grads[b] * grad_step, penalty[1])
        if grad != 0:
            means[b] = grad / (hessians[b] * hess_step + penalty[0])
    return np.argsort(-means, kind="mergesort")

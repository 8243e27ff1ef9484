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
from opboost.trees.kernels.packing import OPTIONS, PARALLEL, as_float, bits_of_float, float_of

# XGBoost's smallest accepted gain.
MIN_GAIN = 1e-6


@njit(**PARALLEL)
def best_cuts(asked, parents, parent_of, rest, totals, rules, n_threads, best):
    """Choose among all allowed columns, for nodes whose histograms were asked for and for their siblings.

    The first ``len(asked)`` nodes have the histograms `asked`, whose sums of every column are replaced by running ones.
    If there are `parents`, as many siblings follow, whose running sums are the parents' less these; they are kept in
    `rest` if it has room.

    Parameters
    ----------
    rules : tuple
        ``offsets`` of the columns' bins; ``allowed``, per node or for all, and column; ``modes``, per column 0 for
        numbers, 1 for categories put in order, and 2 for categories that each stand alone; ``monotone``, per column;
        ``lower`` and ``upper`` bounds of values, per node or for all, and whether there are any; steps of the grid of
        gradients and of Hessians; ``reg_lambda``, ``reg_alpha`` and ``min_child_weight``.
    best : tuple of ndarray
        Gets gain, column, cut, way of missing and left sums of every node, as from `no_cuts`; a gain of minus infinity
        where no cut is allowed.
    """
    offsets = rules[0]
    n_columns = len(offsets) - 1
    n_tasks = len(asked) * n_columns
    n_parts, of_columns = min(n_tasks, n_threads), no_cuts_of_columns(len(totals), n_columns)
    for part in prange(n_parts):
        tasks = slice(n_tasks * part // n_parts, n_tasks * (part + 1) // n_parts)
        search_columns(slice(0, n_columns), tasks, asked, parents, parent_of, rest, totals, rules, of_columns)
    choose_columns(of_columns, totals, rules, best)


@njit(**OPTIONS)
def no_cuts(n_nodes):
    """Room for gain, column, cut, way of missing and left sums of the best cuts of nodes."""
    columns, cuts = np.empty((2, n_nodes), dtype=np.int32)
    return np.full(n_nodes, -np.inf), columns, cuts, np.empty(n_nodes, np.bool_), np.empty((n_nodes, 2), np.int64)


@njit(**OPTIONS)
def no_cuts_of_columns(n_nodes, n_columns):
    """Room for score, cut, way of missing and left sums of every column's best cuts of nodes."""
    shape = n_nodes, n_columns
    cuts, missing_left = np.empty(shape, np.int32), np.empty(shape, np.bool_)
    return np.full(shape, -np.inf), cuts, missing_left, np.empty((n_nodes, n_columns, 2), np.int64)


@njit(**OPTIONS)
def search_columns(own, tasks, asked, parents, parent_of, rest, totals, rules, of_columns):
    """Find the best cuts of columns `own`; `tasks` is a slice of the pairs of node and column, node by node.

    A column without a better cut than the node's columns before it is left out.
    """
    offsets, allowed, modes, monotone, lower, upper, is_bounded = rules[:7]
    grad_step, hess_step, reg_lambda, reg_alpha, min_child_weight = rules[7:]
    scores, cuts, missing_left, left_sums = of_columns
    n_asked, width, highest = len(asked), widest(offsets), np.full(len(totals), -np.inf)
    room, scores_room = np.empty((2, width), dtype=np.int64), np.empty(width)
    for number in range(tasks.start, tasks.stop):
        k, c = number // (own.stop - own.start), own.start + number % (own.stop - own.start)
        begin, end = offsets[c], offsets[c + 1]
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
                scores[node, c], cuts[node, c], missing_left[node, c] = _best_of_column(
                    grads, hessians, totals[node], modes[c], monotone[c], lower[node % len(lower)],
                    upper[node % len(upper)], is_bounded, grad_step, hess_step, (reg_lambda, reg_alpha),
                    min_child_weight, highest[node], left_sums[node, c], scores_room,
                )  # fmt: skip
                highest[node] = max(highest[node], scores[node, c])


@njit(**OPTIONS)
def choose_columns(of_columns, totals, rules, best):
    """Take the first of the columns with the best cut of every node."""
    lower, upper, is_bounded, grad_step, hess_step, reg_lambda, reg_alpha = rules[4:11]
    gains, columns, cuts, missing_left, left_sums = best
    for node in range(len(gains)):
        c = np.argmax(of_columns[0][node])
        columns[node], score, cuts[node] = c, of_columns[0][node, c], of_columns[1][node, c]
        missing_left[node], left_sums[node] = of_columns[2][node, c], of_columns[3][node, c]
        total_g, total_h = totals[node, 0] * grad_step, totals[node, 1] * hess_step
        limits = lower[node % len(lower)], upper[node % len(upper)]
        score = score if is_bounded else score * grad_step * grad_step / hess_step
        gains[node] = score - _score(total_g, total_h, (reg_lambda, reg_alpha), *limits, is_bounded)


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
    min_child_weight, beaten, left_sums, scores_room,
):  # fmt: skip
    """Score, cut and way of missing of one column's best cut, by its running sums; writes the left child's sums.

    Only a score above `beaten` counts. Without bounds scores are in steps of the grid.
    """
    total_g, total_h = total[0] * grad_step, total[1] * hess_step
    if total_h < 2 * min_child_weight:
        return -np.inf, 0, False
    n_bins = len(grads) - 1
    missing_g, missing_h = grads[n_bins] - grads[n_bins - 1], hessians[n_bins] - hessians[n_bins - 1]
    if mode:
        grads, hessians = _reordered(grads, hessians, mode == 2, grad_step, hess_step, penalty)
    has_missing = missing_g != 0 or missing_h != 0
    n_cuts = n_bins if has_missing or mode == 2 else n_bins - 1
    best, best_cut, best_missing = beaten, 0, False
    left_g, left_h, scores = grads[:n_cuts], hessians[:n_cuts], scores_room[:n_cuts]
    for way in range(2 if has_missing else 1):
        first_g, first_h = way * missing_g, way * missing_h
        if is_bounded:
            highest = _bounded_gains(
                left_g, left_h, first_g, first_h, total_g, total_h, direction, lower, upper, grad_step, hess_step,
                penalty, min_child_weight, scores,
            )  # fmt: skip
        else:
            highest = _gains(
                left_g, left_h, first_g, first_h, np.float64(total[0]), np.float64(total[1]), penalty[0] / hess_step,
                penalty[1] / grad_step, max(min_child_weight / hess_step, 1.0), scores,
            )  # fmt: skip
        if highest > best:
            best, best_missing = highest, way == 1
            best_cut = _first(scores, highest) if way == 0 else _last(scores, highest)
            left_sums[0], left_sums[1] = left_g[best_cut] + first_g, left_h[best_cut] + first_h
    if has_missing and direction != 0:
        # Missing left and all present right is not the mirrored split where predictions must rise or fall.
        nothing, score = np.zeros(1, np.int64), np.empty(1)
        _bounded_gains(
            nothing, nothing, missing_g, missing_h, total_g, total_h, direction, lower, upper, grad_step, hess_step,
            penalty, min_child_weight, score,
        )  # fmt: skip
        if score[0] > best:
            best, best_cut, best_missing = score[0], -1, True
            left_sums[0], left_sums[1] = missing_g, missing_h
    return best if best > beaten else -np.inf, best_cut, best_missing


@njit(**OPTIONS)
def _reordered(grads, hessians, is_alone, grad_step, hess_step, penalty):
    """Sums left of each cut of categories in their order, from running sums in the order of the bins."""
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
def _gains(left_g, left_h, first_g, first_h, total_g, total_h, reg_lambda, reg_alpha, least, gains):
    """Score of both children of every cut, minus infinity where one is lighter than `least`; returns the highest.

    All numbers are in steps of the grid, of which a child has at least one, for no Hessian may be zero. To the left
    sums of every cut, `first_g` and `first_h` are added. There is no branch in the loops: the compiler computes several
    cuts at once. The highest is found by the bits of the scores, which have the order of the floats, since each is
    positive, zero or minus infinity.
    """
    highest = bits_of_float(-np.inf)
    if reg_alpha == 0:
        for cut in range(len(gains)):
            g, h = as_float(left_g[cut] + first_g), as_float(left_h[cut] + first_h)
            gains[cut] = _score_of_children(g, total_g - g, h, total_h - h, reg_lambda, least)
            highest = max(highest, bits_of_float(gains[cut]))
    else:
        for cut in range(len(gains)):
            g, h = as_float(left_g[cut] + first_g), as_float(left_h[cut] + first_h)
            left, right = max(abs(g) - reg_alpha, 0.0), max(abs(total_g - g) - reg_alpha, 0.0)
            gains[cut] = _score_of_children(left, right, h, total_h - h, reg_lambda, least)
            highest = max(highest, bits_of_float(gains[cut]))
    return float_of(highest)


@njit(**OPTIONS)
def _score_of_children(left, right, h, other_h, reg_lambda, least):
    """Score of two children, whose gradients are `left` and `right`; both take one division, the slowest step."""
    weight, other_weight = h + reg_lambda, other_h + reg_lambda
    score = (left * left * other_weight + right * right * weight) / (weight * other_weight)
    return score if (h >= least) & (other_h >= least) else -np.inf


@njit(**OPTIONS)
def _first(gains, wanted):
    """Index of the first cut with a gain; the loop has no early exit, so the compiler vectorises it."""
    first = len(gains)
    for cut in range(len(gains)):
        first = min(first, cut if gains[cut] == wanted else len(gains))
    return first


@njit(**OPTIONS)
def _last(gains, wanted):
    last = -1
    for cut in range(len(gains)):
        last = max(last, cut if gains[cut] == wanted else -1)
    return last


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

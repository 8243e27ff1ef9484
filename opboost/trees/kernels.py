# mypy: disable-error-code="no-untyped-def,misc"
"""Every compiled loop of the tree core, and nothing else.

Layout: bins are column-major, ``bins[column, row]``, so that one column's histogram (4 KiB) stays in the first-level
cache while its rows stream by; the rows of a node are contiguous in `rows`, in ascending order, and their gradients lie
beside them in the same order. Sums are int64 and hence exact. Threads divide columns or blocks of rows, never a sum.

A row goes left when its bin is at most the cut, or when it is in the missing bin (the column's last) and missing goes
left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

LARGEST = 2**31 - 1

# XGBoost's smallest accepted gain and smallest Hessian of one row.
MIN_GAIN = 1e-6
MIN_HESS = 1e-16

# Rows that one thread partitions at a time.
BLOCK = 1 << 15

_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(**_options)
def _on_grid(value, scale):
    return np.int32(min(max(np.rint(value * scale), -LARGEST), LARGEST))


@njit(parallel=True, **_options)
def logistic_gradients(scores, labels, weights, grad_scale, hess_scale, out):
    """Gradients of binary cross-entropy on the raw scores, written to ``out[row] = (g, h)``."""
    for i in prange(len(labels)):
        p = 1.0 / (1.0 + math.exp(-scores[i]))
        out[i, 0] = _on_grid(weights[i] * (p - labels[i]), grad_scale)
        out[i, 1] = _on_grid(weights[i] * max(p * (1.0 - p), MIN_HESS), hess_scale)


@njit(parallel=True, **_options)
def squared_gradients(scores, labels, weights, grad_scale, hess_scale, out):
    """Gradients of half the squared error, written to ``out[row] = (g, h)``."""
    for i in prange(len(labels)):
        out[i, 0] = _on_grid(weights[i] * (scores[i] - labels[i]), grad_scale)
        out[i, 1] = _on_grid(weights[i], hess_scale)


@njit(parallel=True, **_options)
def softmax_gradients(scores, labels, weights, grad_scale, hess_scale, out):
    """Gradients of softmax cross-entropy, ``out[class, row] = (g, h)``, with XGBoost's h = 2p(1-p)."""
    n_classes = scores.shape[0]
    for i in prange(len(labels)):
        highest = scores[0, i]
        for k in range(1, n_classes):
            highest = max(highest, scores[k, i])
        total = 0.0
        for k in range(n_classes):
            total += math.exp(scores[k, i] - highest)
        for k in range(n_classes):
            p = math.exp(scores[k, i] - highest) / total
            target = 1.0 if labels[i] == k else 0.0
            out[k, i, 0] = _on_grid(weights[i] * (p - target), grad_scale)
            out[k, i, 1] = _on_grid(weights[i] * max(2.0 * p * (1.0 - p), MIN_HESS), hess_scale)


@njit(parallel=True, **_options)
def build_histograms(bins, rows, gradients, begins, ends, offsets, out):
    """Sum gradients per bin: ``out[node, bin] = (sum of g, sum of h)`` over the node's rows. `out` starts at zero."""
    n_columns = bins.shape[0]
    for task in prange(len(begins) * n_columns):
        node, c = task // n_columns, task % n_columns
        column = bins[c]
        histogram = out[node, offsets[c] : offsets[c + 1]]
        for i in range(begins[node], ends[node]):
            b = column[rows[i]]
            histogram[b, 0] += gradients[i, 0]
            histogram[b, 1] += gradients[i, 1]


@njit(parallel=True, **_options)
def sum_nodes(gradients, begins, ends, out):
    """Sum gradients per node: ``out[node] = (sum of g, sum of h)``."""
    for node in prange(len(begins)):
        grad, hess = 0, 0
        for i in range(begins[node], ends[node]):
            grad += gradients[i, 0]
            hess += gradients[i, 1]
        out[node, 0] = grad
        out[node, 1] = hess


@njit(**_options)
def _score(grad, hess, reg_lambda):
    return grad * grad / (hess + reg_lambda) if hess + reg_lambda > 0 else 0.0


@njit(parallel=True, **_options)
def best_cuts(
    histograms, totals, offsets, columns, grad_scale, hess_scale, reg_lambda, min_child_weight,
    gains, best_columns, cuts, missing_left, left_sums,
):  # fmt: skip
    """The best cut of every node by XGBoost's gain, ties going to the lower column and the cut met first.

    Per column, cuts are met from low to high with missing going right, then from high to low with missing going left,
    as in XGBoost's `hist`. A cut behind the last value bin separates missing from present. ``gains`` stays at
    ``-inf`` where no cut is allowed.
    """
    for node in prange(len(totals)):
        total_g, total_h = totals[node, 0], totals[node, 1]
        whole = _score(total_g / grad_scale, total_h / hess_scale, reg_lambda)
        gains[node] = -np.inf
        for c in columns:
            first, missing = offsets[c], offsets[c + 1] - 1
            missing_g, missing_h = histograms[node, missing, 0], histograms[node, missing, 1]
            has_missing = missing_g != 0 or missing_h != 0
            left_g, left_h = np.int64(0), np.int64(0)
            n_cuts = missing - first if has_missing else missing - first - 1
            for cut in range(n_cuts):
                left_g += histograms[node, first + cut, 0]
                left_h += histograms[node, first + cut, 1]
                gain = _gain(left_g, left_h, total_g, total_h, grad_scale, hess_scale, reg_lambda, min_child_weight)
                if gain - whole > gains[node]:
                    gains[node] = gain - whole
                    best_columns[node], cuts[node], missing_left[node] = c, cut, False
                    left_sums[node, 0], left_sums[node, 1] = left_g, left_h
            if not has_missing:
                continue
            left_g, left_h = total_g, total_h
            for cut in range(missing - first - 2, -1, -1):
                left_g -= histograms[node, first + cut + 1, 0]
                left_h -= histograms[node, first + cut + 1, 1]
                gain = _gain(left_g, left_h, total_g, total_h, grad_scale, hess_scale, reg_lambda, min_child_weight)
                if gain - whole > gains[node]:
                    gains[node] = gain - whole
                    best_columns[node], cuts[node], missing_left[node] = c, cut, True
                    left_sums[node, 0], left_sums[node, 1] = left_g, left_h


@njit(**_options)
def _gain(left_g, left_h, total_g, total_h, grad_scale, hess_scale, reg_lambda, min_child_weight):
    """Score of both children; minus infinity where one is too light."""
    right_g, right_h = total_g - left_g, total_h - left_h
    left_hess, right_hess = left_h / hess_scale, right_h / hess_scale
    if left_h <= 0 or right_h <= 0 or left_hess < min_child_weight or right_hess < min_child_weight:
        return -np.inf
    left = _score(left_g / grad_scale, left_hess, reg_lambda)
    return left + _score(right_g / grad_scale, right_hess, reg_lambda)


@njit(**_options)
def _goes_left(b, cut, missing_left, missing_bin):
    return b <= cut or (missing_left and b == missing_bin)


@njit(parallel=True, **_options)
def divide_rows(
    bins, rows, gradients, begins, columns, cuts, missing_left, missing_bins, block_nodes, block_begins, block_ends,
    spare_rows, spare_gradients, middles,
):  # fmt: skip
    """Divide every node's rows in place, left before right, both in their old order.

    Each block of rows belongs to one node; blocks are counted, given their places by running sums, and moved, each
    by one thread. `middles` receives where each right child begins.
    """
    n_blocks = len(block_nodes)
    left_places = np.empty(n_blocks, dtype=np.int64)
    right_places = np.empty(n_blocks, dtype=np.int64)
    for block in prange(n_blocks):
        k = block_nodes[block]
        column = bins[columns[k]]
        count = 0
        for i in range(block_begins[block], block_ends[block]):
            count += _goes_left(column[rows[i]], cuts[k], missing_left[k], missing_bins[k])
        left_places[block] = count
    middles[:] = begins
    for block in range(n_blocks):
        k = block_nodes[block]
        n_left = left_places[block]
        left_places[block] = middles[k]
        middles[k] += n_left
    for block in range(n_blocks):
        k = block_nodes[block]
        right_places[block] = middles[k] + (block_begins[block] - begins[k]) - (left_places[block] - begins[k])
    for block in prange(n_blocks):
        k = block_nodes[block]
        column = bins[columns[k]]
        left, right = left_places[block], right_places[block]
        for i in range(block_begins[block], block_ends[block]):
            if _goes_left(column[rows[i]], cuts[k], missing_left[k], missing_bins[k]):
                place = left
                left += 1
            else:
                place = right
                right += 1
            spare_rows[place] = rows[i]
            spare_gradients[place, 0] = gradients[i, 0]
            spare_gradients[place, 1] = gradients[i, 1]
    for block in prange(n_blocks):
        for i in range(block_begins[block], block_ends[block]):
            rows[i] = spare_rows[i]
            gradients[i, 0] = spare_gradients[i, 0]
            gradients[i, 1] = spare_gradients[i, 1]


@njit(parallel=True, **_options)
def add_to_scores(scores, rows, begins, ends, values):
    """Add each leaf's value to the scores of its rows."""
    for leaf in prange(len(begins)):
        for i in range(begins[leaf], ends[leaf]):
            scores[rows[i]] += values[leaf]


@njit(parallel=True, **_options)
def place_in_bins(values, cuts, cut_starts, out):
    """Bin of every value, ``out[column, row]``: the number of cuts below it; NaN goes to the bin behind the last."""
    n_rows, n_columns = values.shape
    for task in prange(n_columns * ((n_rows + BLOCK - 1) // BLOCK)):
        c, block = task % n_columns, task // n_columns
        edges = cuts[cut_starts[c] : cut_starts[c + 1]]
        for i in range(block * BLOCK, min((block + 1) * BLOCK, n_rows)):
            value = values[i, c]
            if math.isnan(value):
                out[c, i] = len(edges) + 1
                continue
            low, high = 0, len(edges)
            while low < high:
                middle = (low + high) // 2
                if edges[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            out[c, i] = low


@njit(parallel=True, **_options)
def predict_scores(features, tree_starts, outputs, columns, thresholds, missing_left, lefts, rights, values, out):
    """Add every tree's leaf value to ``out[row, output]``; NaN is missing, ``x <= threshold`` goes left."""
    n_blocks = (len(features) + 255) // 256
    for block in prange(n_blocks):
        for t in range(len(outputs)):
            root = tree_starts[t]
            for i in range(block * 256, min((block + 1) * 256, len(features))):
                node = root
                while columns[node] >= 0:
                    x = features[i, columns[node]]
                    goes_left = missing_left[node] if math.isnan(x) else x <= thresholds[node]
                    node = root + (lefts[node] if goes_left else rights[node])
                out[i, outputs[t]] += values[node]

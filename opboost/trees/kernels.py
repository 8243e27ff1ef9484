# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Every compiled loop of the tree core, and nothing else.

Layout: bins are column-major, ``bins[column, row]``, so that one column's histogram (4 KiB) stays in the first-level
cache while its rows stream by. The rows of a node are contiguous in `rows`, in ascending order, and their gradients lie
in the same places of `gradients`, g in the low and h in the high half of a 64-bit integer. Both arrays have two sides,
``rows[side, place]``: dividing a node moves its rows to the other side. Sums are int64 and hence exact. Threads divide
columns or blocks of rows, never a sum.

A row goes left when its bin is at most the cut, or when it is in the missing bin (the column's last) and missing goes
left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

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
def build_histograms(bins, rows, gradients, sides, begins, ends, offsets, out):
    """Sum gradients per bin: ``out[node, bin] = (sum of g, sum of h)`` over the node's rows. `out` starts at zero.

    Four columns share one pass over the rows: the row's number and gradients are read once for four independent sums,
    which keeps the processor busy while a sum waits for its last store (1.6 times faster than column by column).
    """
    n_columns = bins.shape[0]
    n_groups = (n_columns + 3) // 4
    for task in prange(len(begins) * n_groups):
        node, first = task // n_groups, 4 * (task % n_groups)
        node_rows = rows[sides[node], begins[node] : ends[node]]
        node_gradients = gradients[sides[node], begins[node] : ends[node]]
        if first + 4 <= n_columns:
            _sum_four_columns(bins, first, node_rows, node_gradients, offsets, out[node])
        else:
            for c in range(first, n_columns):
                _sum_column(bins[c], node_rows, node_gradients, out[node, offsets[c] : offsets[c + 1]])


@njit(**_options)
def _sum_column(column, rows, gradients, histogram):
    for i in range(len(rows)):
        _add(histogram, np.int64(column[rows[i]]), gradients[i])


@njit(**_options)
def _sum_four_columns(bins, c, rows, gradients, offsets, out):
    column0, column1, column2, column3 = bins[c], bins[c + 1], bins[c + 2], bins[c + 3]
    histogram0, histogram1 = out[offsets[c] : offsets[c + 1]], out[offsets[c + 1] : offsets[c + 2]]
    histogram2, histogram3 = out[offsets[c + 2] : offsets[c + 3]], out[offsets[c + 3] : offsets[c + 4]]
    for i in range(len(rows)):
        row, gradient = rows[i], gradients[i]
        _add(histogram0, np.int64(column0[row]), gradient)
        _add(histogram1, np.int64(column1[row]), gradient)
        _add(histogram2, np.int64(column2[row]), gradient)
        _add(histogram3, np.int64(column3[row]), gradient)


@intrinsic
def _add(typing_context, histogram, b, gradient):
    """Add a packed gradient to bin `b` of a contiguous ``(n_bins, 2)`` histogram, both sums in one 128-bit operation.

    The compiler does not join the two additions by itself; joined, the whole pass is 1.4 times faster.
    """

    def generate(context, builder, signature, arguments):
        pair, half_pair = ir.VectorType(ir.IntType(64), 2), ir.VectorType(ir.IntType(32), 2)
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(builder.bitcast(array.data, pair.as_pointer()), [arguments[1]], inbounds=True)
        sums = builder.load(place)
        sums.align = 8
        added = builder.add(sums, builder.sext(builder.bitcast(arguments[2], half_pair), pair))
        builder.store(added, place).align = 8
        return context.get_dummy_value()

    return types.void(histogram, types.int64, types.int64), generate


@njit(parallel=True, **_options)
def sum_nodes(gradients, sides, begins, ends, out):
    """Sum gradients per node: ``out[node] = (sum of g, sum of h)``."""
    for node in prange(len(begins)):
        grad, hess = np.int64(0), np.int64(0)
        for i in range(begins[node], ends[node]):
            grad += np.int64(np.int32(gradients[sides[node], i]))
            hess += gradients[sides[node], i] >> 32
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
                g, h = histograms[node, first + cut, 0], histograms[node, first + cut, 1]
                if g == 0 and h == 0:
                    continue
                left_g += g
                left_h += h
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


@njit(parallel=True, **_options)
def divide_rows(
    bins, rows, gradients, goes_left, sides, begins, columns, cuts, missing_left, missing_bins,
    block_nodes, block_begins, block_ends, middles,
):  # fmt: skip
    """Move every node's rows to the other side's arrays, left before right, both in their old order.

    Each block of rows belongs to one node; blocks are counted, given their places by running sums, and moved, each
    by one thread. `goes_left` is room for a flag per row; `middles` receives where each right child begins.
    """
    n_blocks = len(block_nodes)
    left_places = np.empty(n_blocks, dtype=np.int64)
    right_places = np.empty(n_blocks, dtype=np.int64)
    for block in prange(n_blocks):
        k = block_nodes[block]
        here = slice(block_begins[block], block_ends[block])
        missing_bin = missing_bins[k] if missing_left[k] else -1
        left_places[block] = _flag(bins[columns[k]], rows[sides[k], here], cuts[k], missing_bin, goes_left[here])
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
        side = sides[block_nodes[block]]
        left, right = left_places[block], right_places[block]
        for i in range(block_begins[block], block_ends[block]):
            # Which way a row goes cannot be predicted, so there is no branch on it.
            flag = np.int64(goes_left[i])
            place = right + flag * (left - right)
            rows[1 - side, place] = rows[side, i]
            gradients[1 - side, place] = gradients[side, i]
            left += flag
            right += 1 - flag


@njit(**_options)
def _flag(column, rows, cut, missing_bin, goes_left):
    """Note which rows go left, and count them; no bin is negative."""
    count = 0
    for i in range(len(rows)):
        b = column[rows[i]]
        flag = (b <= cut) | (b == missing_bin)
        goes_left[i] = flag
        count += flag
    return count


@njit(parallel=True, **_options)
def add_to_scores(scores, rows, sides, begins, ends, values):
    """Add each leaf's value to the scores of its rows."""
    for leaf in prange(len(begins)):
        leaf_rows = rows[sides[leaf], begins[leaf] : ends[leaf]]
        for i in range(len(leaf_rows)):
            scores[leaf_rows[i]] += values[leaf]


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

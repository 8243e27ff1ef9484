"""Nodes of a growing tree: against the same written with Python's numbers and lists."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.trees.kernels.nodes import NODE, newton_values, split_nodes

SIZES = np.array([3, 6, 4])


class Level:
    """Five open nodes, numbers 2 to 6 of a tree, with best cuts and sums that were drawn."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = rng.permutation(5).astype(np.int32) + np.int32(2)
        self.totals = rng.integers(-50, 50, (5, 2)) + [0, 100]
        self.gains = rng.random(5)
        self.columns = rng.integers(0, 3, 5).astype(np.int32)
        self.cuts = np.array([rng.integers(0, SIZES[column] - 1) for column in self.columns], np.int32)
        self.missing_left = rng.random(5) < 0.5
        self.left_sums = self.totals - rng.integers(0, 50, (5, 2))
        # What lay in this memory before is of no account.
        self.tree = np.frombuffer(rng.bytes(20 * NODE.itemsize), NODE).copy()

    def split(self, chosen: np.ndarray) -> tuple[np.ndarray, ...]:
        return split_nodes(
            chosen,
            self.nodes,
            self.totals,
            (self.gains, self.columns, self.cuts, self.missing_left, self.left_sums),
            SIZES,
            7,
            self.tree,
        )


@pytest.mark.parametrize("seed", range(10))
def test_splits_are_noted_and_children_are_leaves_with_what_is_left_for_them(seed: int) -> None:
    level = Level(seed)
    chosen = np.flatnonzero(np.random.default_rng(seed).random(5) < 0.7)
    nodes, columns, cuts, missing_left, goes_left, lefts, children, sums = level.split(chosen)
    assert lefts.tolist() == [7 + 2 * k for k in range(len(chosen))]
    lighter, other = [], []
    for k, place in enumerate(chosen.tolist()):
        split = level.tree[level.nodes[place]]
        assert nodes[k] == level.nodes[place]
        assert (split["column"], split["cut"], split["left"]) == (columns[k], cuts[k], lefts[k])
        assert (columns[k], cuts[k]) == (level.columns[place], level.cuts[place])
        assert split["missing_left"] == missing_left[k] == level.missing_left[place]
        assert split["gain"] == level.gains[place]
        size = SIZES[columns[k]]
        wanted = [b <= cuts[k] for b in range(size - 1)] + [bool(missing_left[k])]
        assert goes_left[k, :size].tolist() == wanted
        pair = [level.tree[lefts[k]], level.tree[lefts[k] + 1]]
        assert [leaf["column"] for leaf in pair] == [-1, -1]
        assert [(leaf["left"], leaf["cut"], leaf["gain"], bool(leaf["missing_left"])) for leaf in pair] == [
            (0, 0.0, 0.0, False)
        ] * 2
        assert pair[0]["sums"].tolist() == level.left_sums[place].tolist()
        assert (pair[0]["sums"] + pair[1]["sums"]).tolist() == level.totals[place].tolist()
        is_right_lighter = pair[1]["sums"][1] < pair[0]["sums"][1]
        lighter.append(lefts[k] + is_right_lighter)
        other.append(lefts[k] + (not is_right_lighter))
    assert children.tolist() == [*lighter, *other]
    assert sums.tolist() == level.tree["sums"][children].tolist()


@pytest.mark.parametrize("least", [0.0, 1.0])
@pytest.mark.parametrize(("reg_lambda", "reg_alpha"), [(0.0, 0.0), (2.0, 0.0), (1.0, 0.5)])
def test_values_are_newton_steps_within_bounds(reg_lambda: float, reg_alpha: float, least: float) -> None:
    sums = np.array([[0, 0], [40, 8], [-40, 8], [400, 8], [-8, 1], [8, 0]])
    lower, upper = np.array([-3.0, -3.0, -3.0, -1.0, -3.0, -3.0]), np.full(1, 2.0)
    out = np.empty(len(sums))
    newton_values(sums, lower, upper, 4.0, 2.0, (reg_lambda, reg_alpha), least, out)
    wanted = []
    for (grad, hess), low in zip((sums / [4.0, 2.0]).tolist(), lower.tolist(), strict=True):
        is_heavy = hess > 0 and hess >= least
        wanted.append(
            min(
                max(-np.sign(grad) * max(abs(grad) - reg_alpha, 0.0) / (hess + reg_lambda) if is_heavy else 0.0, low),
                2.0,
            )
        )
    assert out.tolist() == wanted
    assert all(math.isfinite(value) for value in wanted)

"""Random trees with noisy counts of classes: what one record moves, and what counts say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import softmax

from opboost.horizontal.noise.noisy_holder import NoisyHolder
from opboost.horizontal.recommended.counted_trees import evidence_of, grow_counted
from opboost.horizontal.rows.joint_rows import JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.rng import seeded
from opboost.trees.losses import Softmax
from opboost.trees.tree import Ensemble, Feature

pytestmark = pytest.mark.usefixtures("one_thread")

GRID = PublicGrid([(0.0, 1.0), (0.0, 3.0)], 16, categorical=(1,))
CLIPPING = Clipping(max_grad=1.0, max_hess=0.25)
STEPS = CLIPPING.grid.grad_scale


class Noted(NoisyHolder):
    """Keeps what it answers."""

    def totals(self, nodes):
        found = super().totals(nodes)
        self.__dict__.setdefault("answers", []).append(found)
        return found


def grown(rows: np.ndarray, labels: np.ndarray, *, n_counted: int = 5, sizes: tuple[int, int] = (5, 4)):
    """Rounds of trees, all answers, and the rows, whose scores have the trees'."""
    indicators = (labels == np.arange(3)[:, None]).astype(float)
    exact = JointRows(
        GRID.place(rows),
        indicators,
        gradients=softmax_gradients,
        clipping=CLIPPING,
        initial_scores=np.zeros(3),
        n_counted=n_counted,
    )
    noisy = Noted(exact, noises=(None, None), n_trees=sizes[0], rng=seeded(0))
    shares = np.array([0.5, 0.3, 0.2])
    uniforms = uniforms_ahead(seeded(1))
    rounds = grow_counted(
        noisy, exact, columns=GRID, shares=shares, sizes=sizes, std=0.0, steps=STEPS, uniforms=uniforms
    )
    return rounds, noisy.answers, exact


def table(n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return np.column_stack([draw.random(n_rows), draw.integers(0, 4, n_rows)]), draw.integers(0, 3, n_rows)


RECORDS = [(0.3, 1.0), (-9.0, math.nan), (math.nan, 3.0)]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("label", [0, 2])
def test_one_record_adds_one_to_one_count_of_a_tree_and_nothing_else(record: tuple[float, float], label: int) -> None:
    rows, labels = table()
    before = grown(rows, labels)[1]
    after = grown(np.vstack([rows, record]), np.append(labels, label))[1]
    for old, new in zip(before, after, strict=True):
        assert old[:, 0].sum() == 60 * STEPS
        assert sorted((new - old).ravel())[-2:] == [0, STEPS]
        assert np.abs(new - old).sum() == STEPS


def test_gradients_in_place_of_counts_would_be_found() -> None:
    """The broken twin: a record moves the sums of all classes."""
    rows, labels = table()
    before = grown(rows, labels, n_counted=0)[1]
    after = grown(np.vstack([rows, RECORDS[0]]), np.append(labels, 0), n_counted=0)[1]
    assert np.count_nonzero(after[0] - before[0]) == 6


def test_scores_have_the_trees_and_those_tell_classes_apart() -> None:
    rows = np.column_stack([np.linspace(0, 0.999, 300), np.zeros(300)])
    labels = np.minimum(3 * rows[:, 0], 2).astype(int)
    rounds, _, exact = grown(rows, labels, sizes=(5, 6))
    scores = np.stack([each.scores for each in exact.outputs])
    features = (Feature("a"), Feature("b"))
    model = Ensemble(tuple(tree for one in rounds for tree in one), np.zeros(3), Softmax(3), features)
    np.testing.assert_allclose(softmax(scores, axis=0).T, model.predict(rows))
    assert (scores.argmax(axis=0) == labels).mean() > 0.9


def test_evidence_is_the_logarithm_of_how_much_larger_a_share_is() -> None:
    shares = np.array([[0.5], [0.25], [0.25]])
    assert evidence_of(np.zeros((3, 2)), shares, 1.0) == pytest.approx(0.0)
    told = evidence_of(np.array([[0.0], [1e9], [0.0]]), shares, 1.0)[:, 0]
    assert told[1] == pytest.approx(math.log(4), abs=1e-6)
    assert told[0] < -15

"""Hints: groups by what own columns expect, and what a group says of the true state."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.denoise.hints import StateHints
from tests.support.channels import geometric

N_ROWS, N_STATES = 20_000, 20
CHANNEL = geometric(N_STATES, 0.4)


@pytest.fixture(scope="module")
def column() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True and released states, and what an own column expects."""
    rng = np.random.default_rng(4)
    expected = rng.uniform(2, 17, N_ROWS)
    truth = np.clip(np.rint(expected + rng.normal(0, 1.5, N_ROWS)), 0, N_STATES - 1).astype(np.int64)
    reached = CHANNEL.cumsum(axis=1)[truth]
    return truth, (reached < rng.random(N_ROWS)[:, None]).sum(axis=1).astype(np.uint8), expected


def made(states: np.ndarray, *expected: np.ndarray | None) -> StateHints:
    return StateHints.of([CHANNEL] * len(expected), states, expected, np.arange(N_ROWS))


def test_groups_are_of_about_as_many_rows_and_say_what_the_truth_says(column: tuple[np.ndarray, ...]) -> None:
    truth, released, expected = column
    hints = made(released[:, None], expected)
    groups, (shares,) = hints.groups[:, 0], hints.shares
    assert np.bincount(groups).tolist() == pytest.approx([N_ROWS / 8] * 8, abs=2)
    counts = np.zeros((N_STATES, 8))
    np.add.at(counts, (truth, groups), 1)
    often = counts.sum(axis=1) > 500
    exact = counts[often] / counts[often].sum(axis=1, keepdims=True)
    assert np.abs(shares[often] - exact).mean() < 0.02
    # Another order of the rows is the twin: its groups say nothing.
    assert np.abs(np.full_like(exact, 1 / 8) - exact).mean() > 0.06
    assert hints.rows(np.array([3, 1])).groups.tolist() == [[groups[3]], [groups[1]]]


def test_what_expects_nothing_is_no_hint(column: tuple[np.ndarray, ...]) -> None:
    _, released, expected = column
    noise = np.random.default_rng(5).permutation(expected)
    flat = np.full(N_ROWS, 3, np.uint8)
    hints = made(np.column_stack([released, released, flat]), None, noise, expected)
    assert not hints.groups.any()
    assert all((one == np.ones((N_STATES, 1))).all() for one in hints.shares)

"""Deconvolution of one column: planted distributions come back, and groups that say nothing stay alike."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.denoise.channel import category_channel
from opboost.denoise.deconvolution import group_shares, margin
from opboost.privacy.local import RandomisedResponse
from tests.support.channels import geometric


@pytest.mark.parametrize(
    "channel", [category_channel(RandomisedResponse(epsilon=1.0, n_categories=4), None).matrix, geometric(4, 1.0)]
)
def test_a_planted_law_is_recovered_through_a_channel_of_known_inverse(channel: np.ndarray) -> None:
    """The released law is given exactly, so the deconvolved one is the inverse channel's, up to the steps made."""
    planted = np.array([0.5, 0.1, 0.3, 0.1])
    released = planted @ channel
    np.testing.assert_allclose(released @ np.linalg.inv(channel), planted)
    counts = np.rint(released * 10**9).astype(np.int64)
    np.testing.assert_allclose(margin(channel, counts), planted, atol=0.01)


@pytest.mark.parametrize("n_rows", [10**7, 20])
def test_groups_are_told_by_the_states_behind_what_was_released_and_few_rows_tell_little(n_rows: int) -> None:
    channel = geometric(4, 1.0)
    laws = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
    masses = np.array([[1.0], [3.0]]) * laws
    found = group_shares(channel, n_rows * masses @ channel)
    truth = (masses / masses.sum(axis=0)).T
    assert found.sum(axis=1) == pytest.approx(np.ones(4))
    # Released codes taken for exact ones are the twin: their groups are less far apart than the truth.
    blurred = ((masses @ channel) / (masses @ channel).sum(axis=0)).T
    gaps = [np.abs(one - truth).max() for one in (found, blurred)]
    assert gaps[0] < 0.02 < 0.05 < gaps[1] if n_rows > 1000 else gaps[0] > 0.1


def test_groups_of_like_rows_say_nothing_and_an_empty_one_does_no_harm() -> None:
    channel = geometric(4, 1.0)
    released = 100 * np.array([0.4, 0.3, 0.2, 0.1]) @ channel
    found = group_shares(channel, np.array([released, 2 * released, 0 * released]))
    np.testing.assert_allclose(found, np.tile([1 / 3, 2 / 3, 0.0], (4, 1)), atol=1e-3)

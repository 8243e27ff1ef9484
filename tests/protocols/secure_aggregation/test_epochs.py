"""Epochs of secure aggregation: a group that would not be safe is refused."""

from __future__ import annotations

import pytest

from protocols.errors import SumRefused
from protocols.secure_aggregation import epochs as secure_epoch
from protocols.secure_aggregation.epochs import Epoch, majority_threshold


@pytest.mark.parametrize(
    ("names", "threshold", "message"),
    [
        (("a",), 1, "among 2 to 200 workers; found 1"),
        (("a", "a", "b"), 2, "names and keys of their own"),
        (("a", "b", "c"), 1, "more than half of the 3 workers; got 1"),
        (("a", "b", "c"), 4, "more than half of the 3 workers; got 4"),
        (tuple(f"w{i}" for i in range(201)), 101, "found 201"),
    ],
)
def test_a_group_that_would_not_be_safe_is_refused(names: tuple[str, ...], threshold: int, message: str) -> None:
    keys = tuple(bytes([i]) * 32 for i in range(len(names)))
    with pytest.raises(SumRefused, match=message):
        Epoch(run="run", number=1, names=names, keys=keys, threshold=threshold)


def test_the_number_of_workers_has_limits_that_are_told() -> None:
    assert (secure_epoch.MIN_WORKERS, secure_epoch.MAX_WORKERS) == (2, 200)


@pytest.mark.parametrize("n_workers", range(2, 12))
def test_two_sums_of_enough_workers_share_one(n_workers: int) -> None:
    for threshold in range(2, n_workers + 1):
        assert majority_threshold(threshold, n_workers) >= threshold
        assert 2 * majority_threshold(threshold, n_workers) > n_workers

"""Decisions by group."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.credit.fairness import fairness, group_names

pytest.importorskip("fairlearn")


def test_rates_of_groups_are_counted() -> None:
    rng = np.random.default_rng(0)
    groups, labels, scores = rng.integers(0, 2, 400).astype(np.float64), rng.integers(0, 2, 400), rng.random(400)
    groups[:20] = np.nan
    found = fairness("sex", groups, labels.astype(np.float64), scores + 0.3 * (groups == 1), share=0.25)
    assert [one.group for one in found.groups] == ["0", "1", "missing"]
    assert [one.n_records for one in found.groups] == [(groups == 0).sum(), (groups == 1).sum(), 20]
    rejected = np.argsort(-(scores + 0.3 * (groups == 1)), kind="stable")[:100]
    is_rejected = np.isin(np.arange(400), rejected)
    assert found.groups[1].rejected == pytest.approx(is_rejected[groups == 1].mean())
    assert found.groups[1].rejected_events == pytest.approx(is_rejected[(groups == 1) & (labels == 1)].mean())
    rates = [one.rejected for one in found.groups]
    assert found.demographic_parity == pytest.approx(max(rates) - min(rates))


def test_many_values_are_fifths_and_missing_ones_apart() -> None:
    names = group_names(np.r_[np.arange(100.0), np.nan])
    assert names[-1] == "missing"
    found, counts = np.unique(names[:-1], return_counts=True)
    assert len(found) == 5
    assert counts.tolist() == [20] * 5


def test_groups_of_values_that_differ_in_late_digits_are_apart() -> None:
    names = group_names(np.array([1234567.0, 1234568.0, 0.1, 20.0]))
    assert names.tolist() == ["1234567", "1234568", "0.1", "20"]
    fifths = group_names(np.linspace(1e9, 1e9 + 4, 100))
    assert sorted(set(fifths.tolist()))[0].startswith("over 1000000000.8 up to ")


def test_groups_of_times_are_dates() -> None:
    assert group_names(np.array([19_358.0, 0.0]), unit_s=86400).tolist() == ["2023-01-01", "1970-01-01"]
    assert group_names(19_358 + np.arange(100.0), unit_s=86400)[0] == "up to 2023-01-20"


def test_categories_are_groups_by_their_names_however_many_there_are() -> None:
    towns = [f"town {i}" for i in range(20)]
    assert group_names(np.r_[np.arange(20.0), np.nan], towns).tolist() == [*towns, "missing"]


def test_decisions_among_equal_scores_do_not_follow_the_file() -> None:
    groups, labels = np.repeat([0.0, 1.0], 5000), np.tile([0.0, 1.0], 5000)
    assert fairness("sex", groups, labels, np.full(10_000, 0.5), share=0.5).demographic_parity < 0.05

"""Weight of evidence and information value in monotone bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.columns import OwnColumn
from opboost.credit.evidence import PRIOR, monotone_groups, own_characteristic
from opboost.errors import DataError


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30), st.integers(1, 6))
def test_bins_are_neighbours_in_monotone_order_and_few(cells: list[tuple[int, int]], most: int) -> None:
    events, others = np.array(cells, np.float64).T
    events[0] += 1
    others[-1] += 1
    groups = monotone_groups(events, others, most_bins=most)
    np.testing.assert_array_equal(np.concatenate(groups), np.arange(len(cells)))
    assert len(groups) <= most
    rates = [events[one].sum() / (events + others)[one].sum() for one in groups]
    steps = np.diff(rates)
    assert len(groups) == 1 or (steps > -1e-12).all() or (steps < 1e-12).all()


def test_the_weights_are_those_of_the_definition() -> None:
    values = np.repeat([0.0, 1.0], 1000)
    labels = np.r_[np.arange(1000) < 100, np.arange(1000) < 400].astype(np.float64)
    found = own_characteristic(OwnColumn("age", values), labels)
    good, bad = np.array([900, 600]) + PRIOR, np.array([100, 400]) + PRIOR
    weights = np.log(good / good.sum() / (bad / bad.sum()))
    np.testing.assert_allclose(found.weights, weights)
    assert found.information_value == pytest.approx(((good / good.sum() - bad / bad.sum()) * weights).sum())
    np.testing.assert_allclose(found.of_records, np.repeat(weights, 1000))
    assert found.bins == ("up to 0.5", "over 0.5")


def test_missing_cells_and_categories_have_bins_of_their_own() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, 4000).astype(np.float64)
    labels = (rng.random(4000) < np.array([0.1, 0.5, 0.1, 0.8])[kinds.astype(int)]).astype(np.float64)
    kinds[::10] = np.nan
    found = own_characteristic(OwnColumn("kind", kinds, is_categorical=True), labels)
    assert found.bins[-1] == "missing"
    assert set(", ".join(found.bins[:-1]).split(", ")) == {"0", "1", "2", "3"}
    assert (np.diff(found.event_rates[:-1]) > 0).all()
    assert found.shares[-1] == pytest.approx(0.1)
    numbers = own_characteristic(OwnColumn("n", kinds), labels)
    assert numbers.bins[-1] == "missing"


@pytest.mark.parametrize("labels", [np.zeros(5), np.arange(5.0), np.zeros((5, 2))], ids=["one", "numbers", "two"])
def test_labels_must_be_events(labels: np.ndarray) -> None:
    with pytest.raises(DataError, match="needs labels 0 and 1"):
        own_characteristic(OwnColumn("x", np.arange(5.0)), labels)


def test_edges_of_bins_are_told_with_every_digit() -> None:
    found = own_characteristic(OwnColumn("id", 1234567 + np.arange(1000.0)), (np.arange(1000) < 300).astype(np.float64))
    assert found.bins == ("up to 1234866.5", "over 1234866.5")


def test_edges_of_bins_of_times_are_dates() -> None:
    days, labels = 19_358 + np.arange(1000.0), (np.arange(1000) < 300).astype(np.float64)
    assert own_characteristic(OwnColumn("since", days, unit_s=86400), labels).bins == (
        "up to 2023-10-27",
        "over 2023-10-27",
    )


@pytest.mark.parametrize("is_categorical", [False, True])
def test_bins_of_categories_are_told_by_their_names(is_categorical: bool) -> None:
    values, labels = np.repeat(np.arange(3.0), 1000), np.tile(np.arange(10), 300) < np.repeat([1, 4, 8], 1000)
    column = OwnColumn("kind", values, is_categorical, ("low", "mid", "high"))
    found = own_characteristic(column, labels.astype(np.float64))
    assert found.bins == (("low", "mid", "high") if is_categorical else ("up to low", "over low up to mid", "over mid"))

"""Integer domains, their partitions, and what is refused before a map can exist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.domain import IntegerDomain, Partition


@st.composite
def domains(draw: st.DrawFn) -> IntegerDomain:
    lo = draw(st.integers(-1000, 1000))
    return IntegerDomain(lo, lo + draw(st.integers(1, 200)))


@st.composite
def uneven_partitions(draw: st.DrawFn) -> Partition:
    domain = draw(domains())
    inner = draw(st.sets(st.integers(domain.lo + 1, domain.hi)))
    return Partition(domain, (domain.lo, *sorted(inner)))


def cells_one_by_one(partition: Partition) -> list[int]:
    """The cell of every point, found by walking from start to start."""
    cells, cell = [], -1
    for point in range(partition.domain.lo, partition.domain.hi + 1):
        if point in partition.starts:
            cell += 1
        cells.append(cell)
    return cells


@pytest.mark.parametrize("ends", [(3, 3), (4, 3), (0.0, 3), (0, 3.5), ("0", 3), (float("nan"), 3), (0, float("inf"))])
def test_a_domain_needs_two_integer_ends_in_order(ends):
    with pytest.raises(ParameterError, match="domain needs"):
        IntegerDomain(*ends)


@given(domains())
@settings(max_examples=100, deadline=None)
def test_a_domain_counts_both_ends(domain):
    assert domain.size == len(range(domain.lo, domain.hi)) + 1


@given(domains(), st.lists(st.integers(-5000, 5000), min_size=1))
@settings(max_examples=100, deadline=None)
def test_clipping_moves_codes_to_the_nearest_point_of_the_domain(domain, codes):
    clipped = domain.clip(np.array(codes))
    assert clipped.tolist() == [min(max(code, domain.lo), domain.hi) for code in codes]


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint8, np.uint64])
def test_positions_count_from_the_lower_end_for_every_integer_type(dtype):
    codes = np.array([3, 10, 7], dtype=dtype)
    positions = IntegerDomain(3, 10).positions(codes)
    assert positions.dtype == np.int64
    assert positions.tolist() == [0, 7, 4]


@pytest.mark.parametrize("dtype", [np.float64, np.bool_, object, np.complex128])
def test_codes_that_are_not_integers_are_refused(dtype):
    with pytest.raises(ParameterError, match=r"must be integers.*Nothing was drawn"):
        IntegerDomain(0, 3).positions(np.ones(2, dtype=dtype))


@pytest.mark.parametrize("outside", [[0], [10], [777, 888], [-777, 777, 888]])
def test_codes_outside_are_counted_and_never_shown(outside):
    codes = np.array([1, 2, *outside])
    with pytest.raises(ParameterError, match=rf"{len(outside)} codes lie outside the domain \[1, 9\]") as caught:
        IntegerDomain(1, 9).positions(codes)
    assert "777" not in str(caught.value)
    assert "888" not in str(caught.value)


def test_a_code_beyond_64_signed_bits_is_outside_and_does_not_wrap():
    with pytest.raises(ParameterError, match="1 codes lie outside"):
        IntegerDomain(-5, 5).positions(np.array([2**64 - 1], dtype=np.uint64))


@given(domains(), st.data())
@settings(max_examples=100, deadline=None)
def test_cells_of_equal_width_are_anchored_below_and_clipped_above(domain, data):
    theta = data.draw(st.integers(1, domain.size))
    partition = Partition.of_width(domain, theta)
    assert partition.starts[0] == domain.lo
    assert (partition.widths[:-1] == theta).all()
    assert partition.widths[-1] == domain.size - (partition.n_cells - 1) * theta
    assert partition.n_cells == -(-domain.size // theta)


@given(uneven_partitions())
@example(partition=Partition(IntegerDomain(0, 2), (0, 1)))
@settings(max_examples=100, deadline=None)
def test_every_point_lies_in_exactly_one_cell(partition):
    cells = partition.cell_of(np.arange(partition.domain.size))
    assert cells.tolist() == cells_one_by_one(partition)
    assert np.bincount(cells).tolist() == partition.widths.tolist()


@given(uneven_partitions())
@settings(max_examples=100, deadline=None)
def test_cell_starts_are_the_starts_counted_from_the_lower_end(partition):
    assert (partition.cell_starts + partition.domain.lo).tolist() == list(partition.starts)


@given(uneven_partitions(), st.data())
@settings(max_examples=100, deadline=None)
def test_the_extents_of_cells_are_their_starts_and_widths(partition, data):
    theta = data.draw(st.integers(1, partition.domain.size))
    for either in (partition, Partition.of_width(partition.domain, theta)):
        starts, widths = either.extents(np.arange(either.n_cells))
        assert (starts == either.cell_starts).all()
        assert (widths == either.widths).all()


@settings(max_examples=50, deadline=None)
@given(domains(), st.data())
def test_equal_width_is_a_short_form_of_its_edges(domain, data):
    theta = data.draw(st.integers(1, domain.size))
    assert Partition.of_width(domain, theta) == Partition(domain, tuple(range(domain.lo, domain.hi + 1, theta)))


@pytest.mark.parametrize("theta", [0, -1, 11, 2.0, True, "2", None, float("nan")])
def test_a_width_that_is_not_a_number_of_points_is_refused_by_name(theta):
    with pytest.raises(ParameterError, match="theta must be an integer between 1 and the 10 points"):
        Partition.of_width(IntegerDomain(1, 10), theta)


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ((), "must start at 1"),
        ((2, 5), "must start at 1"),
        ((0, 5), "must start at 1"),
        ((1, 5, 5), "increase strictly"),
        ((1, 7, 5), "increase strictly"),
        ((1, 11), r"stay within \[1, 10\]"),
    ],
)
def test_edges_that_do_not_divide_the_domain_are_refused(starts, words):
    with pytest.raises(ParameterError, match=words):
        Partition(IntegerDomain(1, 10), starts)

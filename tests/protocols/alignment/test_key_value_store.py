"""Oblivious key-value store: every id finds its value, failures are rarer than 2^-40, and nothing else is fixed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln

from protocols.alignment import key_value_store
from protocols.alignment.key_value_store import (
    DIGEST_BYTES,
    ENTRY_BYTES,
    LEAST_IDS,
    N_DENSE,
    make_table,
    n_sparse_entries,
    random_entries,
    read_table,
    values_of,
)
from protocols.errors import ProtocolError


def digests(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, DIGEST_BYTES), np.uint8)


@pytest.mark.parametrize("n", [0, 1, 2, 100, LEAST_IDS, 9_000])
def test_every_id_finds_its_value(n: int) -> None:
    n_sparse = n_sparse_entries(n)
    table = make_table(digests(n), n_sparse)
    assert table.shape == (n_sparse + N_DENSE, ENTRY_BYTES)
    np.testing.assert_array_equal(read_table(table, digests(n), n_sparse), values_of(digests(n)))
    others = digests(n, seed=2)
    assert not (read_table(table, others, n_sparse) == values_of(others)).all(axis=1).any()


def test_a_sum_is_that_of_three_places_and_the_named_dense_entries() -> None:
    """By hand: places are three words of 32 bits, scaled to a third; bits of eight bytes name dense entries."""
    n_sparse = n_sparse_entries(1)
    table = random_entries(n_sparse + N_DENSE)
    for digest in digests(20):
        words, third = digest[:12].view("<u4"), n_sparse // 3
        named = [int(word) * third // 2**32 + at * third for at, word in enumerate(words)]
        named += [n_sparse + bit for bit in range(N_DENSE) if int(digest[12:20].view("<u8")[0]) >> bit & 1]
        expected = np.bitwise_xor.reduce(table[named], axis=0)
        np.testing.assert_array_equal(read_table(table, digest[None], n_sparse)[0], expected)


def test_ids_that_need_the_same_entries_are_told_apart_by_the_dense_ones() -> None:
    alike = digests(24)
    alike[:, :12] = alike[0, :12]
    some = np.concatenate([alike, digests(500, seed=3)])
    n_sparse = n_sparse_entries(len(some))
    np.testing.assert_array_equal(read_table(make_table(some, n_sparse), some, n_sparse), values_of(some))


def test_ids_without_a_table_are_an_error() -> None:
    alike = digests(N_DENSE + 1)
    alike[:, :12] = alike[0, :12]
    with pytest.raises(ProtocolError, match="cannot be hidden in a table"):
        make_table(alike, n_sparse_entries(len(alike)))


def test_entries_that_no_id_fixes_are_random_each_time() -> None:
    n_sparse = n_sparse_entries(3)
    tables = [make_table(digests(3), n_sparse) for _ in range(2)]
    assert (tables[0] != tables[1]).any(axis=1).mean() > 0.99
    bits = np.unpackbits(np.concatenate(tables), axis=1, bitorder="little")
    # 76 bits of some 13,000 entries: ones differ from half by less than five standard deviations.
    assert abs(bits[:, :76].mean() - 0.5) < 5 * 0.5 / np.sqrt(bits[:, :76].size)
    assert not bits[:, 76:].any()


def log2_chance_that_more_are_left(
    n_ids: int, n_sparse: int, more_than: int, *, up_to: int | None = None, log2_each: float = 0.0
) -> float:
    """Bound: the expected number of sets of c > more_than ids that no entry is needed by once, over all c.

    Each counts 2^(log2_each c) times.

    c ids fill a third of t entries so that none has exactly one with a chance of c! [z^c] (e^z - z)^t / t^c, which is
    at most c! (e^z - z)^t / (z t)^c for any z > 0.
    """
    c = np.arange(more_than + 1, (up_to or n_ids) + 1, 1.0)
    third = n_sparse // 3
    z = np.exp(np.linspace(np.log(1e-4), np.log(12), 1200))
    grown = third * np.log(np.exp(z) - z)
    best = np.concatenate(
        [(grown - part[:, None] * np.log(z)).min(axis=1) for part in np.array_split(c, min(50, len(c)))]
    )
    one_third = np.minimum(gammaln(c + 1) + best - c * np.log(third), 0)
    sets = gammaln(n_ids + 1) - gammaln(c + 1) - gammaln(n_ids - c + 1) + 3 * one_third
    sets += log2_each * c * np.log(2)
    return float((sets.max() + np.log(np.exp(sets - sets.max()).sum())) / np.log(2))


@pytest.mark.parametrize("n_ids", [100, LEAST_IDS, 17_541])
def test_two_to_the_sixteen_tables_fail_with_a_chance_below_two_to_the_minus_forty(n_ids: int) -> None:
    n_sparse, few = n_sparse_entries(n_ids), N_DENSE - 40
    assert log2_chance_that_more_are_left(n_ids, n_sparse, few) < -60
    # Of c that are left, a random system of 64 unknowns has no solution with a chance below 2^(c - 64).
    assert log2_chance_that_more_are_left(n_ids, n_sparse, 1, up_to=few, log2_each=1.0) - N_DENSE < -60


def test_the_bound_tells_a_table_that_is_too_small() -> None:
    assert log2_chance_that_more_are_left(LEAST_IDS, int(1.3 * LEAST_IDS), N_DENSE - 40) > 0


@pytest.mark.parametrize(("percent", "is_left"), [(115, True), (156, False)])
def test_peeling_leaves_many_ids_of_a_table_that_is_too_small_and_hardly_one_otherwise(
    percent: int, is_left: bool
) -> None:
    some = digests(LEAST_IDS)
    n_sparse = 3 * (LEAST_IDS * percent // 300)
    _, left = key_value_store._peel(key_value_store._places(some, n_sparse), n_sparse)
    assert (len(left) > N_DENSE) is is_left

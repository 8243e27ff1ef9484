"""Oblivious key-value store (Garimella, Pinkas, Rosulek, Trieu and Yanai, CRYPTO 2021) of random values under ids.

A table in which an id's value of `VALUE_BITS` bits is the sum of one entry in each third of its `n_sparse` first
entries, and of those among the `N_DENSE` last entries that 64 bits of the id's digest name. Entries that no id fixes
are random, and so are the values: the table says nothing about which ids it was made of.

Three entries per id are found by peeling: an entry that one id alone needs is set last, by that id. The ids that need
the same few entries are left over, and the dense entries solve them, but for a chance of 2^(c - 64) where c are left.
That more than 24 are left has a chance below 2^-64 with 1.56 entries per id and room for at least 4096 ids: the
expected number of sets of c > 24 ids that need no entry once is less (`tests/protocols/alignment/test_key_value_store`
adds it up), and what peeling leaves is such a set. Smaller sets, each times its 2^(c - 64), add up to less than 2^-60.
So 2^16 tables fail with a chance below 2^-40.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from protocols.alignment.bit_matrices import BitMatrix, multiply
from protocols.errors import ProtocolError

N_DENSE = 64

# Entries per id, in percent, and the ids that every table has room for.
EXPANSION_PERCENT = 156
LEAST_IDS = 1 << 12

VALUE_BITS = 76

# Of a value or an entry, whose bits are the first `VALUE_BITS`.
ENTRY_BYTES = 16

# Fields of an id's digest: its place in each third, its dense entries, its value.
DIGEST_BYTES = 30
_PLACES, _DENSE, _VALUE = slice(12), slice(12, 20), slice(20, 30)


def n_sparse_entries(n_ids: int) -> int:
    """Entries besides the dense ones in a table for at most so many ids; a multiple of three."""
    return 3 * -(-max(n_ids, LEAST_IDS) * EXPANSION_PERCENT // 300)


def values_of(digests: BitMatrix) -> BitMatrix:
    """The value of each digest, as an entry."""
    values = np.zeros((len(digests), ENTRY_BYTES), np.uint8)
    values[:, :10] = digests[:, _VALUE]
    return _masked(values)


def make_table(digests: BitMatrix, n_sparse: int) -> BitMatrix:
    """Table under whose ids their values stand.

    Parameters
    ----------
    digests : ndarray of uint8, shape (n_ids, DIGEST_BYTES or more)
        Distinct.
    n_sparse : int
        See `n_sparse_entries`.

    Raises
    ------
    ProtocolError
        If there is no such table, which has a chance below 2^-40.
    """
    table = random_entries(n_sparse + N_DENSE)
    entries, values = table.view("<u8"), values_of(digests).view("<u8")
    places = _places(digests, n_sparse)
    rounds, left = _peel(places, n_sparse)
    _solve(entries[n_sparse:], digests[left, _DENSE], values[left] ^ _sum_of(entries, places[left]))
    values ^= multiply(digests[:, _DENSE], table[n_sparse:]).view("<u8")
    for ids, last in reversed(rounds):
        entries[last] = 0
        entries[last] = values[ids] ^ _sum_of(entries, places[ids])
    return table


def read_table(table: BitMatrix, digests: BitMatrix, n_sparse: int) -> BitMatrix:
    """Sum of each id's entries in a table whose entries have any number of bytes that is a multiple of eight."""
    total = multiply(digests[:, _DENSE], table[n_sparse : n_sparse + N_DENSE])
    total.view("<u8")[...] ^= _sum_of(table.view("<u8"), _places(digests, n_sparse))
    return total


def random_entries(n_entries: int) -> BitMatrix:
    """Random entries of a table."""
    return _masked(np.frombuffer(bytearray(secrets.token_bytes(n_entries * ENTRY_BYTES)), np.uint8))


def _masked(entries: BitMatrix) -> BitMatrix:
    entries = entries.reshape(-1, ENTRY_BYTES)
    entries[:, 10:] = 0
    entries[:, 9] &= 0x0F
    return entries


def _places(digests: BitMatrix, n_sparse: int) -> NDArray[np.int64]:
    third = n_sparse // 3
    words = np.ascontiguousarray(digests[:, _PLACES]).view("<u4").astype(np.int64)
    return ((words * third) >> 32) + third * np.arange(3)


def _sum_of(entries: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    first, second, third = places.T
    return entries[first] ^ entries[second] ^ entries[third]


def _peel(
    places: NDArray[np.int64], n_sparse: int
) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.int64]]], NDArray[np.int64]]:
    """Rounds of ids, with an entry each that no id of the same or a later round needs; and the ids that are left."""
    degree = np.bincount(places.ravel(), minlength=n_sparse)
    # The only id of an entry of degree one is the sum of all its ids.
    ids_sum = np.zeros(n_sparse, np.int64)
    np.bitwise_xor.at(ids_sum, places, np.arange(len(places))[:, None])
    is_left, rounds = np.ones(len(places), np.bool_), []
    single = np.flatnonzero(degree == 1)
    while len(single):
        ids, first = np.unique(ids_sum[single], return_index=True)
        rounds.append((ids, single[first]))
        is_left[ids] = False
        np.subtract.at(degree, places[ids], 1)
        np.bitwise_xor.at(ids_sum, places[ids], ids[:, None])
        touched = np.unique(places[ids])
        single = touched[degree[touched] == 1]
    return rounds, np.flatnonzero(is_left)


def _solve(dense: NDArray[np.uint64], choices: BitMatrix, sums: NDArray[np.uint64]) -> None:
    """Set dense entries so that those of each id's choice add up to its sum (Gaussian elimination)."""
    solved: list[tuple[int, int, int]] = []
    for choice, due in zip(choices, sums, strict=True):
        chosen, value = (int.from_bytes(row.tobytes(), "little") for row in (choice, due))
        for pivot, other, its_value in solved:
            if chosen >> pivot & 1:
                chosen, value = chosen ^ other, value ^ its_value
        if not chosen:
            raise ProtocolError("these ids cannot be hidden in a table, which hardly ever happens. Try again")
        solved.append((chosen.bit_length() - 1, chosen, value))
    for pivot, chosen, value in reversed(solved):
        others = [bit for bit in range(N_DENSE) if chosen >> bit & 1 and bit != pivot]
        own = np.frombuffer(value.to_bytes(ENTRY_BYTES, "little"), "<u8")
        dense[pivot] = own ^ np.bitwise_xor.reduce(dense[others], axis=0)

"""Steps 6 and 7 at a column's owner: split tests and their routing bits, or cells.

A split test is "code <= threshold", with a fixed answer for a missing cell. The owner keeps the thresholds and
answers with one bit per test and record; the bits say which way each record goes at the splits on this party's
columns, and nothing more. Where tests stand for the cells of an agreed grid (`opboost.cell_grid`), the answer is the
number of tests of each column that fail, in binary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Codes, Mask, Ranks, Values
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize, exact
from opboost.errors import DataError, RankError
from opboost.preprocess import EncodedColumn, encode
from opboost.ranking import Ranking, indicator
from opboost.rng import BitSource
from opboost.schema import ColumnSchema
from opboost.table_format import TableFormat

# Most bytes of the tables of all columns' answers, and answers that are computed at a time.
MOST_TABLE_BYTES = 1 << 26
_PIECE_ANSWERS = 1 << 20


@dataclass(frozen=True, slots=True)
class SplitTests:
    """Tests on one owner's columns, in the order in which the active party listed them.

    Attributes
    ----------
    sources : tuple of (str, int or None), length n_tests
        Name of the column in the schema, and for an indicator the position of its category.
    thresholds : ndarray of float64, shape (n_tests,)
        In the mapped domain; infinite for a test that only asks whether the cell is present.
    missing_left : ndarray of bool, shape (n_tests,)
        The answer for a missing cell.
    by_cells : bool
        Whether the tests of each column, which then stand together, number the cells of an agreed grid.
    """

    sources: tuple[tuple[str, int | None], ...]
    thresholds: Values
    missing_left: Mask
    by_cells: bool = False

    @property
    def n_tests(self) -> int:
        return len(self.sources)

    @property
    def n_bits(self) -> int:
        """Bits of the answer about a record."""
        return sum(n.bit_length() for n in Counter(self.sources).values()) if self.by_cells else self.n_tests

    @property
    def columns(self) -> set[str]:
        """Names of the schema columns that the tests are about."""
        return {name for name, _ in self.sources}

    def by_column(self) -> dict[str, tuple[list[int], list[int]]]:
        """Of each column, the numbers of its tests, and those of their bits in an answer."""
        numbers: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name, _ in self.sources}
        first = first_bit = 0
        groups = Counter(self.sources).items() if self.by_cells else ((source, 1) for source in self.sources)
        for (name, _), n_tests in groups:
            n_bits = n_tests.bit_length()
            numbers[name][0].extend(range(first, first + n_tests))
            numbers[name][1].extend(range(first_bit, first_bit + n_bits))
            first, first_bit = first + n_tests, first_bit + n_bits
        return numbers

    def encoded(self, goes_left: Mask) -> Mask:
        """The bits of answers, shape ``(n_rows, n_bits)``, given which way every record goes at every test."""
        if not self.by_cells:
            return goes_left
        parts, start = [], 0
        for n_tests in Counter(self.sources).values():
            n_failed = (~goes_left[:, start : start + n_tests]).sum(axis=1)
            parts.append((n_failed[:, None] >> np.arange(n_tests.bit_length())[::-1] & 1).astype(np.bool_))
            start += n_tests
        return np.hstack([np.empty((len(goes_left), 0), np.bool_), *parts])


@dataclass(frozen=True, slots=True)
class Router:
    """Split tests with the mechanisms that answer them for new records.

    Attributes
    ----------
    mechanisms : tuple of ColumnMechanism
        The preprocessing and the noise of every column, as in training.
    tests : SplitTests
    format : TableFormat or None
        How the columns' cells are written in their owner's files, for whoever holds the same columns; earlier versions
        have no word on it.
    """

    mechanisms: tuple[ColumnMechanism, ...]
    tests: SplitTests
    format: TableFormat | None = None

    @property
    def asked(self) -> tuple[ColumnMechanism, ...]:
        """The mechanisms of the columns that the tests name; encoded columns have their order."""
        return tuple(mechanism for mechanism in self.mechanisms if mechanism.schema.name in self.tests.columns)

    def unit_s(self, column: str) -> int | None:
        """Seconds of a unit of a column of times; None for any other, and of models of earlier versions."""
        return None if self.format is None else self.format.of(column).unit_s

    def answer(self, features: pd.DataFrame, *, rng: BitSource | None) -> Mask:
        """Which way every raw row goes at every test, shape ``(n_rows, n_tests)``; True is left.

        Parameters
        ----------
        features : DataFrame
        rng : BitSource or None
            None answers from exact codes; a source desensitizes them first, with the training mechanism.

        Notes
        -----
        Privacy: with a source, the answers are a function of a new release under each column's guarantee. Without
        one they are exact and carry no differential privacy.
        """
        columns = [
            exact(mechanism, encoded) if rng is None else desensitize(mechanism, encoded, rng=rng)
            for mechanism, encoded in self.encode(features)
        ]
        return answer(self.tests, {column.schema.name: column for column in columns}, len(features))

    def encode(self, features: pd.DataFrame) -> list[tuple[ColumnMechanism, EncodedColumn]]:
        """The columns that the tests name, of raw rows: mechanism and exact codes, which must not leave the owner."""
        absent = sorted(self.tests.columns - set(features.columns))
        if absent:
            raise DataError(f"the split tests need columns that are absent: {', '.join(absent)}. Nothing was answered")
        return [
            (mechanism, encode(features[mechanism.schema.name], mechanism.schema, domain=mechanism.settings.domain))
            for mechanism in self.asked
        ]


class PackedAnswers:
    """Packed routing bits, by one table look-up per column instead of one comparison per test.

    A column's tests ask only on which side of some cuts a code lies. So all codes between two neighbouring cuts have
    the same answers, which are computed once and kept in a table. Where the tables of all columns would be too large,
    answers are computed per record instead: a peer that asks for all splits of many codes must not fill the memory.

    Parameters
    ----------
    router : Router
    """

    def __init__(self, router: Router) -> None:
        self.n_bits = router.tests.n_bits
        self._n_bytes = -(-self.n_bits // 8)
        self._columns: dict[str, _ColumnAnswers] = {}
        schemas = {mechanism.schema.name: mechanism.schema for mechanism in router.mechanisms}
        bytes_left = MOST_TABLE_BYTES
        for name, (numbers, bits) in router.tests.by_column().items():
            answers = _ColumnAnswers.of(router.tests, numbers, np.array(bits), schemas[name], most_bytes=bytes_left)
            self._columns[name] = answers
            bytes_left -= answers.table.nbytes

    def of(self, columns: Mapping[str, ReleasedColumn], n_rows: int) -> NDArray[np.uint8]:
        """The answers, shape ``(n_rows, ceil(n_bits / 8))``.

        Parameters
        ----------
        columns : mapping of str to ReleasedColumn
            All columns that the tests name, exact or desensitized.
        n_rows : int
        """
        packed = np.zeros((n_rows, self._n_bytes), np.uint8)
        for name, answers in self._columns.items():
            answers.write(columns[name], packed)
        return packed


@dataclass(frozen=True, slots=True, eq=False)
class _ColumnAnswers:
    """The answers of one column's tests, packed.

    Attributes
    ----------
    tests : SplitTests
        Of this column.
    used : slice or ndarray of int64
        The bytes of an answer that these tests are in.
    bits : ndarray of int64, shape (tests.n_bits,)
        Places of their bits in these bytes.
    cuts : ndarray of int64
        Ascending: the highest code of every interval but the last.
    table : ndarray of uint8
        Those bytes, a row per interval and one more for a missing cell; empty where it would be too large.
    """

    tests: SplitTests
    used: slice | NDArray[np.int64]
    bits: NDArray[np.int64]
    cuts: Codes
    table: NDArray[np.uint8]

    @classmethod
    def of(
        cls, tests: SplitTests, numbers: list[int], bits: NDArray[np.int64], schema: ColumnSchema, *, most_bytes: int
    ) -> Self:
        """Tabulate the answers of a column's tests, given their numbers and their bits in an answer.

        The table is left empty if it would take more than `most_bytes`.
        """
        sources = tuple(tests.sources[i] for i in numbers)
        tests = SplitTests(sources, tests.thresholds[numbers], tests.missing_left[numbers], tests.by_cells)
        used_bytes, places = np.unique(bits // 8, return_inverse=True)
        first, last = int(used_bytes[0]), int(used_bytes[-1])
        used = slice(first, last + 1) if last - first + 1 == len(used_bytes) else used_bytes
        cuts = np.unique(np.array(list(_cuts(tests)), np.int64))
        untabulated = cls(tests, used, 8 * places + bits % 8, cuts, np.empty((0, len(used_bytes)), np.uint8))
        if (len(cuts) + 2) * len(used_bytes) > most_bytes:
            return untabulated
        codes = np.append(cuts, [cuts[-1] + 1 if len(cuts) else 0, 0])
        column = ReleasedColumn(schema, codes, np.arange(len(codes)) == len(codes) - 1)
        return replace(untabulated, table=np.concatenate([answers for _, answers in untabulated._pieces(column)]))

    def write(self, column: ReleasedColumn, packed: NDArray[np.uint8]) -> None:
        """Write the answers about this column into the packed answers about all columns."""
        if len(self.table):
            places = np.searchsorted(self.cuts, column.codes)
            places[column.is_missing] = len(self.table) - 1
            packed[:, self.used] |= self.table[places]
            return
        for rows, answers in self._pieces(column):
            packed[rows, self.used] |= answers

    def _pieces(self, column: ReleasedColumn) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        """Packed answers about a column, piece by piece: the rows, and their bytes."""
        categories = np.array([-1 if category is None else category for _, category in self.tests.sources])
        n_at_once = max(1, _PIECE_ANSWERS // self.tests.n_tests)
        for start in range(0, len(column.codes), n_at_once):
            rows = slice(start, start + n_at_once)
            codes, is_missing = column.codes[rows, None], column.is_missing[rows, None]
            tested = np.where(categories < 0, codes, codes == categories)
            goes_left = np.where(is_missing, self.tests.missing_left, tested <= self.tests.thresholds)
            bits = np.zeros((len(codes), 8 * self.table.shape[1]), np.bool_)
            bits[:, self.bits] = self.tests.encoded(goes_left)
            yield rows, np.packbits(bits, axis=1)


def resolve(columns: Sequence[Ranking], column_of: NDArray[np.uint32], ranks: Ranks, missing_left: Mask) -> SplitTests:
    """Resolve tests "rank <= r on column c" to thresholds, as the columns' owner.

    The highest rank stands for "present at all" on a column that released missing cells, provided that missing
    goes right; elsewhere it has no right neighbour and is refused.

    Raises
    ------
    RankError
        If a column does not exist or a rank has no right neighbour; no threshold is revealed then.
    """
    thresholds = np.empty(len(ranks))
    sources = []
    for i, (c, r, left) in enumerate(zip(column_of.tolist(), ranks.tolist(), missing_left.tolist(), strict=True)):
        if not c < len(columns):
            raise RankError(f"split on column {c}, but only columns 0..{len(columns) - 1} were released")
        column = columns[c]
        is_presence = column.has_missing and r == column.table.n_ranks - 1 and not left
        thresholds[i] = np.inf if is_presence else column.table.threshold(r)
        sources.append((column.source, column.category))
    return SplitTests(tuple(sources), thresholds, missing_left.astype(np.bool_))


def answer(tests: SplitTests, columns: Mapping[str, ReleasedColumn], n_rows: int) -> Mask:
    """Which way every record goes at every test, shape ``(n_rows, n_tests)``, by all columns that they name."""
    goes_left = np.empty((n_rows, tests.n_tests), dtype=np.bool_)
    for i, (source, category) in enumerate(tests.sources):
        column = columns[source]
        codes = column.codes if category is None else indicator(column, category)
        goes_left[:, i] = np.where(column.is_missing, tests.missing_left[i], codes <= tests.thresholds[i])
    return goes_left


def _cuts(tests: SplitTests) -> Iterator[int]:
    """Codes behind which some answer may change; a test on a category changes before and behind it."""
    for (_, category), threshold in zip(tests.sources, tests.thresholds.tolist(), strict=True):
        if category is not None:
            yield from (category - 1, category)
        elif math.isfinite(threshold):
            yield math.floor(threshold)

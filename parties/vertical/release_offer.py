"""The offer of a passive party's release, the bytes of its ranks, and the row from which a resumed release goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.errors import ParameterError
from opboost.privacy.guarantee import Guarantee
from opboost.ranking import Ranking, rankings
from opboost.routing import Router
from opboost.schema import ColumnSchema, Kind
from opboost.split_tests import ListedTests
from parties.errors import Disagreement
from parties.storage.serialization import router_to_dict
from parties.storage.spool import WINDOW_ROWS
from parties.tables.blocks import Block, EncodedTable, cut
from parties.vertical.shared_codes import codes_that_occur
from protocols.errors import UnexpectedMessage
from protocols.messages.fields import MAX_COLUMNS, ColumnNames
from protocols.messages.vertical import Held, Offer, OfferedColumn, SplitRanks
from protocols.transport.codec import encode

ReleaseTable = Callable[[Sequence[ColumnMechanism], EncodedTable], None]
"""Draws a training table, so that its blocks have the codes of every column; refuses, if at all, before any draw."""


def greets_only(mechanisms: Sequence[ColumnMechanism], table: EncodedTable) -> None:
    """Raise `ParameterError`: the job has no account."""
    raise ParameterError("this job has no account to release from. Nothing was released")


def rank_type(n_ranks: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type that holds a column's ranks; a missing cell has the number of ranks."""
    return np.min_scalar_type(n_ranks).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """A table's drawn codes, and the order in which its rows are sent.

    Attributes
    ----------
    mechanisms : tuple of ColumnMechanism
    blocks : tuple of Block
    order : ndarray of int64, optional
        By default the order of the rows.
    """

    mechanisms: tuple[ColumnMechanism, ...]
    blocks: tuple[Block, ...]
    order: NDArray[np.int64] | None = None

    def pieces(self, c: int, start: int = 0, end: int | None = None) -> Iterator[ReleasedColumn]:
        """Rows `start` to `end` of column `c`, in pieces of at most `WINDOW_ROWS`."""
        schema, entry = self.mechanisms[c].schema, f"{c}.codes"
        if self.order is not None:
            whole = np.concatenate([block[entry] for block in self.blocks])[self.order[start:end]]
            yield from (ReleasedColumn.of_marked(schema, part) for part in cut(whole, WINDOW_ROWS))
            return
        for block in self.blocks:
            codes = block[entry]
            rows = codes[max(start, 0) : end if end is None else max(end, 0)]
            yield from (ReleasedColumn.of_marked(schema, part) for part in cut(rows, WINDOW_ROWS))
            start, end = start - len(codes), None if end is None else end - len(codes)


@dataclass(frozen=True, slots=True)
class OfferedRanks:
    """A column of ranks that is to be sent.

    Attributes
    ----------
    released : ReleasedTable
    number : int
        The number of the column that it comes from.
    ranking : Ranking
    digest : str
        Digest of the bytes that are sent.
    """

    released: ReleasedTable
    number: int
    ranking: Ranking
    digest: str = ""

    def ranks(self, start: int = 0, end: int | None = None) -> Iterator[NDArray[np.unsignedinteger]]:
        """Ranks of rows `start` to `end`, in the smallest type, in pieces of at most `WINDOW_ROWS`."""
        kind = rank_type(self.ranking.table.n_ranks)
        return (self.ranking.ranks(piece).astype(kind) for piece in self.released.pieces(self.number, start, end))


def rank_columns(released: ReleasedTable) -> Iterator[OfferedRanks]:
    """The columns of ranks of a drawn table; an unordered column gives one per category."""
    for c, mechanism in enumerate(released.mechanisms):
        for ranking in rankings(mechanism.schema, replace(released, order=None).pieces(c)):
            column = OfferedRanks(released, c, ranking)
            digest = hashlib.sha256()
            for piece in column.ranks():
                digest.update(piece)
            yield replace(column, digest=digest.hexdigest())


def make_offer(
    mechanisms: Sequence[ColumnMechanism],
    columns: Sequence[OfferedRanks],
    guarantee: Guarantee,
    *,
    opaque_names: bool,
    share_codes: bool = False,
    cuts: Sequence[Sequence[int]] | None = None,
    router: Router | None = None,
) -> Offer:
    """The offer that precedes the ranks: every column, the guarantee, and the cuts of an agreed grid.

    `router` answers by that grid; it is given if the active party may have it.
    """
    promises = {promise.column: promise for promise in guarantee.columns}
    ranked = [column.ranking for column in columns]
    codes = codes_that_occur(
        mechanisms, [(ranking.source, ranking.table) for ranking in ranked], are_shared=share_codes
    )
    names = offered_names(mechanisms, opaque_names=opaque_names)
    offered = []
    for i, (name, column, occurring) in enumerate(zip(names, columns, codes, strict=True)):
        ranking, promise = column.ranking, promises[column.ranking.source]
        offered.append(
            OfferedColumn(
                name=name,
                n_ranks=ranking.table.n_ranks,
                has_missing=ranking.has_missing,
                digest=column.digest,
                mechanism=promise.mechanism,
                law=promise.law,
                epsilon=promise.epsilon,
                codes=occurring,
                cuts=None if cuts is None else tuple(cuts[i]),
            )
        )
    return Offer(
        columns=tuple(offered),
        guarantee=_without_units(guarantee, opaque_names=opaque_names).to_dict(),
        router=None if router is None else router_to_dict(router),
    )


def offered_names(mechanisms: Sequence[ColumnMechanism], *, opaque_names: bool) -> tuple[str, ...]:
    """Names of the released columns, in their order; they do not depend on any draw.

    Raises
    ------
    ParameterError
        If there are more names than an offer can hold, or one that a message cannot.
    """
    names = [name for mechanism in mechanisms for name in rank_names(mechanism.schema)]
    if len(names) > MAX_COLUMNS:
        raise ParameterError(
            f"{len(names)} columns of ranks would be released, one for every category of an unordered column; at most "
            f"{MAX_COLUMNS} can be. Nothing was sent"
        )
    if opaque_names:
        return tuple(f"c{c}" for c in range(len(names)))
    try:
        return TypeAdapter(ColumnNames).validate_python(tuple(names))
    except ValidationError as error:
        raise ParameterError(
            f"{error.error_count()} names of columns cannot travel as they are: at most 200 characters that can be "
            "printed, and no blanks but the usual one, are allowed, with its category for an unordered column, and no "
            "two alike. Rename them, or let them travel under numbers (`opaque_names`). Nothing was sent"
        ) from None


def offer_digest(offer: Offer) -> str:
    """Digest that identifies a release; an offer contains the digests of its columns."""
    return hashlib.sha256(encode(offer)[0]).hexdigest()


def training_digest(offer: Offer, wanted: ListedTests | SplitRanks | None) -> str:
    """Digest that identifies a training: of its release, and of the split tests that were asked, if any."""
    digest = hashlib.sha256(encode(offer)[0])
    for array in () if wanted is None else (wanted.columns, wanted.ranks, wanted.missing_left):
        digest.update(np.asarray(array, "<u4").tobytes())
    return digest.hexdigest()


def check_held(held: Held | None, offer: Offer, peer: str, *, n_rows: int) -> None:
    """Refuse to resume if the active party holds part of another release, or more rows than this one has.

    Raises
    ------
    Disagreement, UnexpectedMessage
    """
    if held is not None and held.offer != offer_digest(offer):
        raise Disagreement(
            f"{peer} holds the beginning of another release than the one that is stored here; choose another run_id on "
            "both sides. No ranks were sent"
        )
    if held is not None and (held.row > n_rows or (held.column, held.row) > (len(offer.columns), 0)):
        raise UnexpectedMessage(
            f"{peer} holds {held.row} rows of column {held.column} of a release of {len(offer.columns)} columns and "
            f"{n_rows} rows. No ranks were sent"
        )


def first_row(held: Held | None, column: int, n_rows: int) -> int:
    """The first row of a column that the active party does not hold."""
    if held is None or column > held.column:
        return 0
    return n_rows if column < held.column else held.row


def _without_units(guarantee: Guarantee, *, opaque_names: bool) -> Guarantee:
    """The guarantee without the words of its units, which would reveal the width of the bounds to the peer."""
    columns = (
        replace(
            promise,
            column=f"column {i}" if opaque_names else promise.column,
            unit=promise.unit if "n_categories" in promise.parameters else "one step of the column",
        )
        for i, promise in enumerate(guarantee.columns)
    )
    return replace(guarantee, columns=tuple(columns))


def rank_names(schema: ColumnSchema) -> list[str]:
    """Names of a column's columns of ranks; an unordered column has one indicator per category."""
    if schema.kind is not Kind.UNORDERED:
        return [schema.name]
    return [f"{schema.name}={category}" for category in schema.categories]

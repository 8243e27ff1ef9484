"""How a passive party words its release: the offer, the bytes of its ranks, and what need not be sent twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.errors import ParameterError
from opboost.privacy.guarantee import Guarantee
from opboost.ranking import Ranking, RankTable
from opboost.schema import ColumnSchema, Kind
from parties.errors import Disagreement
from parties.storage.spool import WINDOW_ROWS, ArraySpool
from parties.vertical.shared_codes import codes_that_occur
from protocols.errors import UnexpectedMessage
from protocols.messages.fields import MAX_COLUMNS
from protocols.messages.vertical import Held, Offer, OfferedColumn
from protocols.transport.codec import encode


def rank_type(n_ranks: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type that holds a column's ranks, and its number of ranks for a missing row."""
    return np.min_scalar_type(n_ranks).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """A column of ranks that waits to be sent.

    Attributes
    ----------
    source : str
        The column of the schema that it comes from.
    category : int or None
        For an indicator: the position of its category in the schema's list.
    table : RankTable
    has_missing : bool
    digest : str
        Of its bytes as they will travel.
    number : int
        Where they lie in the spool.
    """

    source: str
    category: int | None
    table: RankTable
    has_missing: bool
    digest: str
    number: int


def pack(
    released: ReleasedColumn, ranking: Ranking, spool: ArraySpool, order: NDArray[np.int64] | None
) -> PackedColumn:
    """Put a column's ranks aside as they will travel: in the smallest type, and in the given order of rows."""
    kind, n_rows = rank_type(ranking.table.n_ranks), len(released.codes)
    pieces: Iterable[NDArray[np.unsignedinteger]] = (
        ranking.ranks(released, slice(i, i + WINDOW_ROWS)).astype(kind) for i in range(0, n_rows, WINDOW_ROWS)
    )
    if order is not None:
        pieces = [np.concatenate([np.empty(0, kind), *pieces])[order]]
    digest, number = hashlib.sha256(), spool.put(np.empty(0, kind))
    for piece in pieces:
        digest.update(piece)
        spool.extend(piece)
    return PackedColumn(
        ranking.source, ranking.category, ranking.table, ranking.has_missing, digest.hexdigest(), number
    )


def make_offer(
    mechanisms: Sequence[ColumnMechanism],
    columns: Sequence[PackedColumn],
    guarantee: Guarantee,
    *,
    opaque_names: bool,
    share_codes: bool = False,
) -> Offer:
    """What is about to be released, column by column, and what that promises."""
    promises = {promise.column: promise for promise in guarantee.columns}
    codes = codes_that_occur(mechanisms, [(column.source, column.table) for column in columns], are_shared=share_codes)
    offered = tuple(
        OfferedColumn(
            name=name,
            n_ranks=column.table.n_ranks,
            has_missing=column.has_missing,
            digest=column.digest,
            mechanism=promises[column.source].mechanism,
            law=promises[column.source].law,
            epsilon=promises[column.source].epsilon,
            codes=occurring,
        )
        for name, column, occurring in zip(
            offered_names(mechanisms, opaque_names=opaque_names), columns, codes, strict=True
        )
    )
    public = _without_names(guarantee) if opaque_names else guarantee
    return Offer(columns=offered, guarantee=public.to_dict())


def offered_names(mechanisms: Sequence[ColumnMechanism], *, opaque_names: bool) -> tuple[str, ...]:
    """What the released columns are called, in their order: known before anything is drawn.

    Raises
    ------
    ParameterError
        If there are more than an offer can have.
    """
    names = [name for mechanism in mechanisms for name in _names(mechanism.schema)]
    if len(names) > MAX_COLUMNS:
        raise ParameterError(
            f"{len(names)} columns of ranks would be released, one for every category of an unordered column; at most "
            f"{MAX_COLUMNS} can be. Nothing was sent"
        )
    return tuple(f"c{c}" for c in range(len(names))) if opaque_names else tuple(names)


def offer_digest(offer: Offer) -> str:
    """Tells one release from every other: an offer names the digests of its columns."""
    return hashlib.sha256(encode(offer)[0]).hexdigest()


def check_held(held: Held | None, offer: Offer, peer: str, *, n_rows: int) -> None:
    """Refuse to go on with a release of which the active party holds another one's beginning, or more than there is.

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
    """The first row of a column that the active party lacks."""
    if held is None or column > held.column:
        return 0
    return n_rows if column < held.column else held.row


def _without_names(guarantee: Guarantee) -> Guarantee:
    """The guarantee as the other side may read it: a unit tells the width of the bounds, so its words stay here."""
    columns = (
        replace(promise, column=f"column {i}", unit="one step of the column")
        for i, promise in enumerate(guarantee.columns)
    )
    return replace(guarantee, columns=tuple(columns))


def _names(schema: ColumnSchema) -> list[str]:
    """A column of unordered categories is released as one indicator for each (`opboost.ranking.rank`)."""
    if schema.kind is not Kind.UNORDERED:
        return [schema.name]
    return [f"{schema.name}={category}" for category in schema.categories]

"""Released codes of a mapped domain, shared by their owner and checked by the receiver.

Which codes of the mapped domain occur is a function of the release, so sharing it costs no privacy. With it, and with
the settings that the guarantee names, the active party can learn through the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from opboost.denoise.channel import MOST_CELLS, ColumnRelease
from opboost.denoise.sources import MOST_CATEGORIES
from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.adj_map import OrderPreservingMap
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.guarantee import ColumnGuarantee, Guarantee
from opboost.privacy.laws import Law
from opboost.privacy.local import RandomisedResponse
from opboost.ranking import RankTable
from protocols.errors import UnexpectedMessage
from protocols.messages.fields import MAX_CODE_BYTES
from protocols.messages.vertical import Offer, OfferedColumn

# Bytes of all codes that an offer shares, half of what a header holds: more are not shared.
MOST_CODE_BYTES = 16 << 20

# Numbers of all mechanisms that the receiver builds, and of the channels to their true states: columns beyond are not
# corrected. A mixture holds as many for each of its classes, in single precision: 1.7 GB in all, or 500 wide columns.
MOST_HELD = 1 << 23

_CODES = IntegerDomain(0, 1)


def codes_that_occur(
    mechanisms: Sequence[ColumnMechanism], tables: Sequence[tuple[str, RankTable]], *, are_shared: bool
) -> list[bytes | None]:
    """Per table, one bit for every code of its column's mapped domain, packed: whether it was released.

    None if they are not shared, or too many for one message.

    Notes
    -----
    Privacy: a function of the released codes. Without noise these are exact; ranks alone say less, so none are shared.
    """
    by_name = {mechanism.schema.name: mechanism.value for mechanism in mechanisms}
    codes = [_packed(by_name[source], table) if are_shared else None for source, table in tables]
    too_many = sum(len(codes or b"") for codes in codes) > MOST_CODE_BYTES
    return [None] * len(codes) if too_many else codes


def _packed(mechanism: OrderPreservingMap | RandomisedResponse, table: RankTable) -> bytes | None:
    domain = _CODES if isinstance(mechanism, RandomisedResponse) else mechanism.domain
    if math.isinf(mechanism.epsilon) or domain.size > 8 * MAX_CODE_BYTES:
        return None
    occurs = np.zeros(domain.size, np.bool_)
    occurs[table.codes - domain.lo] = True
    return np.packbits(occurs).tobytes()


def check_ranks(offer: Offer, guarantee: Guarantee, *, peer: str) -> None:
    """Refuse a column of more ranks than its guarantee has values: split tests would tell more of labels than it says.

    Raises
    ------
    UnexpectedMessage
    """
    promised = (promise for promise in guarantee.columns for _ in range(n_offered(promise)))
    for index, (column, promise) in enumerate(zip(offer.columns, promised, strict=True)):
        most = 2.0 if "n_categories" in promise.parameters else promise.parameters.get("domain_size", math.nan)
        # Also of a column without a rank: the report counts the values of all.
        if not column.n_ranks <= most:
            values = "no number of" if math.isnan(most) else f"{most:g}"
            raise UnexpectedMessage(
                f"{peer} offers {column.n_ranks} ranks in column {index}, and its guarantee is for {values} values. "
                "Nothing was asked"
            )


def releases_of(offer: Offer, guarantee: Guarantee, *, peer: str) -> tuple[ColumnRelease | None, ...]:
    """For every offered column the channel that it went through; None where no codes are shared, or none can be used.

    Raises
    ------
    UnexpectedMessage
        If codes do not fit the column's ranks and domain, or the guarantee's settings are none of a mechanism.
    """
    if all(column.codes is None for column in offer.columns):
        return (None,) * len(offer.columns)
    if sum(len(column.codes or b"") for column in offer.columns) > MOST_CODE_BYTES:
        raise UnexpectedMessage(f"{peer} shares more than {MOST_CODE_BYTES} bytes of codes")
    releases: list[ColumnRelease | None] = []
    n_held = 0
    try:
        for promise in guarantee.columns:
            n_members = n_offered(promise)
            members = offer.columns[len(releases) : len(releases) + n_members]
            if len(members) < n_members:
                raise ParameterError(f"{len(offer.columns)} columns are fewer than the guarantee's")
            is_usable = n_members <= MOST_CATEGORIES and all(
                member.n_ranks and member.codes is not None for member in members
            )
            n_held += _held(promise, members) if is_usable else 0
            if n_held > MOST_HELD or not is_usable:
                releases += [None] * n_members
                continue
            mechanism = _mechanism(promise)
            releases += [_release(promise, mechanism, member, c) for c, member in enumerate(members)]
        if len(releases) < len(offer.columns):
            raise ParameterError(f"{len(offer.columns)} columns are more than the guarantee's")
    except ParameterError as error:
        raise UnexpectedMessage(f"{peer} shares codes that cannot be used: {error}") from None
    return tuple(releases)


def n_offered(promise: ColumnGuarantee) -> int:
    """Number of columns of ranks that a column is offered as: one, or one per unordered category.

    Raises
    ------
    ParameterError
        If the promise states no valid number of categories.
    """
    is_unordered = promise.mechanism == RandomisedResponse.name or "n_categories" in promise.parameters
    return _whole(promise, "n_categories", 2) if is_unordered else 1


def _held(promise: ColumnGuarantee, members: Sequence[OfferedColumn]) -> int:
    """Number of array entries in a column's noise channel and mechanism."""
    if promise.mechanism == RandomisedResponse.name:
        return len(members) ** 2
    n_points = _whole(promise, "domain_size", 2)
    n_states = min(n_points, MOST_CELLS) * min(members[0].n_ranks, MOST_CELLS)
    theta = _whole(promise, "theta", 1) if "theta" in promise.parameters else 0
    return n_states + theta + (n_points // theta if theta else 0)


def _mechanism(promise: ColumnGuarantee) -> OrderPreservingMap | RandomisedResponse:
    """The mechanism that a guarantee describes, with every check of its settings."""
    epsilon = promise.parameters.get("epsilon", math.nan)
    if promise.mechanism == RandomisedResponse.name:
        return RandomisedResponse(epsilon=epsilon, n_categories=_whole(promise, "n_categories", 2))
    return MechanismSettings(
        mechanism=promise.mechanism,
        epsilon=epsilon,
        law=cast(Law, promise.law),
        theta=_whole(promise, "theta", 1) if "theta" in promise.parameters else None,
        alpha=promise.parameters.get("alpha", 1.0),
        domain_size=_whole(promise, "domain_size", 2),
    ).build()


def _release(
    promise: ColumnGuarantee, mechanism: OrderPreservingMap | RandomisedResponse, column: OfferedColumn, member: int
) -> ColumnRelease:
    is_category, codes = isinstance(mechanism, RandomisedResponse), column.codes or b""
    n_points = _CODES.size if isinstance(mechanism, RandomisedResponse) else mechanism.domain.size
    occurs = np.unpackbits(np.frombuffer(codes, np.uint8))
    positions = np.flatnonzero(occurs)
    if len(codes) != -(-n_points // 8) or occurs[n_points:].any() or len(positions) != column.n_ranks:
        raise ParameterError(f"{len(positions)} codes in {len(codes)} bytes do not fit {column.n_ranks} ranks")
    if column.has_missing and not promise.missing_epsilon:
        raise ParameterError("a column has missing rows, of which its guarantee says nothing")
    bit = RandomisedResponse(epsilon=promise.missing_epsilon, n_categories=2) if promise.missing_epsilon else None
    return ColumnRelease(mechanism, bit, positions, member if is_category else None)


def _whole(promise: ColumnGuarantee, name: str, least: int) -> int:
    value = promise.parameters.get(name, math.nan)
    if not (least <= value <= 8 * MAX_CODE_BYTES and value == int(value)):
        raise ParameterError(f"{name} must be a whole number from {least} to {8 * MAX_CODE_BYTES}; got {value:g}")
    return int(value)

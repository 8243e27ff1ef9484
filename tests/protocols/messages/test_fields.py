"""Whatever a peer can put into a message has a bound that stands in the message itself, and no number is NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import annotated_types as at
import numpy as np
import pytest
from pydantic import BaseModel, Field, JsonValue, ValidationError
from pydantic.fields import FieldInfo

from protocols.messages.fields import MAX_COLUMNS, MAX_TESTS, array_of
from protocols.messages.horizontal import Commitments, Members, PassTree, Place
from protocols.messages.message import Message
from protocols.messages.registry import MESSAGE_TYPES
from protocols.messages.vertical import Held, Hello, OfferedColumn, SplitRanks, Terms, Thresholds
from protocols.secure_aggregation.epochs import MAX_WORKERS

# Ids of a request: what a request may hold is the receiver's own setting, a header has no more than 32 MiB.
OPEN_ENDED = {"Ask.ids", "Ask.ids[]"}


def unbounded(kind: str, annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[str, str]]:
    """Places of a field that nothing bounds: integers, texts and sequences without an end, floats that may be NaN."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        flat = [one for item in more for one in (item.metadata if isinstance(item, FieldInfo) else (item,))]
        yield from unbounded(kind, inner, (*metadata, *flat))
        return
    if origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from unbounded(kind, part, metadata)
        return
    has = {type(one) for one in metadata}
    patterns = [one for one in metadata if getattr(one, "pattern", None)]
    if origin is tuple:
        if at.MaxLen not in has:
            yield kind, "length"
        yield from unbounded(f"{kind}[]", get_args(annotation)[0])
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from unbounded_fields(annotation)
    elif annotation is int and not (at.Ge in has and has & {at.Lt, at.Le}):
        yield kind, "int"
    elif annotation is float and not has & {at.Ge, at.Gt}:
        yield kind, "float"
    elif annotation in (str, bytes) and not (at.MaxLen in has or patterns):
        yield kind, "text"


def unbounded_fields(message: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, info in message.model_fields.items():
        for place, what in unbounded(name, info.annotation, tuple(info.metadata)):
            yield f"{message.__name__}.{place}", what


@pytest.mark.parametrize("kind", sorted(MESSAGE_TYPES))
def test_every_number_text_and_sequence_of_a_message_has_a_bound(kind: str) -> None:
    found = {place for place, _ in unbounded_fields(MESSAGE_TYPES[kind])}
    assert found - OPEN_ENDED == set()


def test_a_field_without_a_bound_is_found_wherever_it_stands() -> None:
    class Part(Message):
        kind = "part"
        number: int

    class Open(Message):
        kind = "open"
        count: Annotated[int, Field(ge=0)]
        share: float | None
        words: Annotated[tuple[str, ...], Field(max_length=3)]
        parts: tuple[Part, ...]
        bounded: Annotated[str, Field(max_length=3)]
        digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
        loss: Annotated[float, Field(ge=0)]

    found = sorted(unbounded_fields(Open))
    assert found == [
        ("Open.Part.number", "int"),
        ("Open.count", "int"),
        ("Open.parts", "length"),
        ("Open.share", "float"),
        ("Open.words[]", "text"),
    ]


def nested(n: int) -> list[Any]:
    """Lists within one another, so many."""
    return [] if n == 0 else [nested(n - 1)]


def wrong(message: type[Message], item: object, n: int) -> dict[str, Any]:
    """As many wrong values in every field as there is room for; in a sequence of messages, in each of these."""
    found: dict[str, Any] = {name: [item] * n for name in message.model_fields}
    for name, info in message.model_fields.items():
        parts = [one for one in get_args(info.annotation) if isinstance(one, type) and issubclass(one, Message)]
        found.update((name, [wrong(part, item, n)] * n) for part in parts)
    return found


@pytest.mark.parametrize("item", [b"x", "", -1, [], {}, {b"x": 1}], ids=repr)
def test_a_message_of_wrong_values_makes_few_errors_however_many_there_are(item: object) -> None:
    """An error takes a kilobyte while it is told: 8 MB of cuts that are texts would take 5 GB and a minute."""
    for message in MESSAGE_TYPES.values():
        for fields in (wrong(message, item, 1000), {str(i): item for i in range(1000)}):
            try:
                message.model_validate(fields)
            except ValidationError as error:
                assert error.error_count() <= 300, (message.kind, item)  # noqa: PT017


@pytest.mark.parametrize("value", [[], {1: 2}, {"a": (1,)}, {"a": b"x"}, {"a": [{"b": {1}}]}, {"a": nested(16)}])
def test_a_document_holds_plain_values_that_are_not_nested_too_deeply(value: object) -> None:
    assert Thresholds.model_validate({"router": {"a": nested(14)}}).router == {"a": nested(14)}
    with pytest.raises(ValidationError):
        Thresholds.model_validate({"router": value})


COLUMN = {"name": "c", "n_ranks": 2, "has_missing": False, "digest": "0" * 64, "mechanism": "", "law": "", "epsilon": 1}
HELLO = {"role": "active", "party": "a", "run_id": "r", "task": "train", "n_rows": 3}
FLAGS = np.zeros(3, np.bool_)
NODES = np.zeros(3, np.int32)
TURN = {
    "turn": 0,
    "epsilon": 1.0,
    "is_secure": True,
    "columns": NODES,
    "thresholds": np.zeros(3),
    "missing_left": FLAGS,
    "lefts": NODES,
    "rights": NODES,
    "values": np.zeros(3),
}


def odd(number: float) -> Any:
    return np.array([0.0, number, 0.0])


@pytest.mark.parametrize(
    ("message", "fields", "name", "wrong"),
    [
        *((OfferedColumn, COLUMN, "epsilon", wrong) for wrong in (math.nan, -1.0, -math.inf)),
        *((Terms, {}, name, wrong) for name in ("epsilon", "total_epsilon") for wrong in (math.nan, -0.5)),
        *((Hello, HELLO, "n_rows", wrong) for wrong in (2**32, 2**60, 2**63)),
        (Hello, HELLO, "id_point", b"\x02" * 34),
        (Hello, HELLO, "names", ("c",) * (MAX_COLUMNS + 1)),
        *(
            (Hello, HELLO, "names", (wrong,))
            for wrong in ("", "c" * 201, "c\n", "\0", "\x1b[2J", "\x9b", "a\u202eb", "a\u200bb", "a\u2028b")
        ),
        (Hello, HELLO, "max_rows", 2**60),
        (Held, {"offer": "0" * 64, "column": 0, "row": 0}, "row", 2**60),
        (OfferedColumn, COLUMN, "law", "x" * 201),
        *(
            (PassTree, TURN, name, odd(wrong))
            for name in ("thresholds", "values")
            for wrong in (math.nan, math.inf, -math.inf)
        ),
        *((Place, {}, "cuts", np.array([[0.0, wrong]])) for wrong in (math.nan, math.inf)),
        (PassTree, TURN, "epsilon", math.nan),
    ],
)
def test_a_number_that_no_party_could_mean_is_refused(
    message: type[Message], fields: dict[str, Any], name: str, wrong: object
) -> None:
    if fields:
        message.model_validate(fields)
    with pytest.raises(ValidationError):
        message.model_validate({**fields, name: wrong})


@pytest.mark.parametrize(
    "rows",
    [np.zeros((2**26, 0), np.uint8), np.zeros((2, 31), np.uint8), np.zeros((3, 32), np.uint8)],
    ids=["rows of nothing", "short rows", "a row too many"],
)
def test_there_is_a_key_of_32_bytes_for_every_name(rows: Any) -> None:
    """A frame of no bytes at all can claim 67 million rows, each of which would become an object."""
    Members(epoch=0, names=("a", "b"), keys=np.zeros((2, 32), np.uint8), round=0)
    with pytest.raises(ValidationError):
        Members(epoch=0, names=("a", "b"), keys=rows, round=0)


def test_no_more_tests_are_read_than_a_model_may_ask_for() -> None:
    for n, is_refused in ((MAX_TESTS, False), (MAX_TESTS + 1, True)):
        ranks, flags = np.zeros(n, np.uint32), np.zeros(n, np.bool_)
        with pytest.raises(ValidationError) if is_refused else nullcontext():
            SplitRanks(columns=ranks, ranks=ranks, missing_left=flags)


def test_no_more_workers_are_named_than_can_take_part() -> None:
    names, rows = tuple(map(str, range(MAX_WORKERS + 1))), np.zeros((MAX_WORKERS + 1, 32), np.uint8)
    for message in (Members, Commitments):
        fields: dict[str, Any] = (
            {"epoch": 0, "keys": rows, "round": 0} if message is Members else {"rows": rows, "is_open": True}
        )
        message(names=names[:2], **{name: value[:2] if value is rows else value for name, value in fields.items()})
        with pytest.raises(ValidationError):
            message(names=names, **fields)


def test_the_types_of_enumerations_and_flags_need_no_bound() -> None:
    assert list(unbounded("x", bool)) == list(unbounded("x", Enum)) == list(unbounded("x", JsonValue)) == []
    assert array_of("|u1").func(np.zeros(1, np.uint8)).tolist() == [0]

"""What the wire can say: closed fields, closed types, and nothing beyond the sequence diagram."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.messages import vertical as messages
from protocols.messages.id_alignment import (
    BlindedIds,
    CommonIds,
    HeldOutShares,
    HiddenIds,
    IdConfirmation,
    MoreIds,
    OrderShare,
    ReblindedIds,
    TransferAnswer,
    TransferPoints,
)
from protocols.messages.liveness import Heartbeat
from protocols.messages.message import Message
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import (
    MESSAGES,
    Abort,
    Done,
    Held,
    Hello,
    MoreRanks,
    Offer,
    OfferedColumn,
    RankChunk,
    Role,
    SplitRanks,
    Task,
    Terms,
    Thresholds,
)

HELLO = {"role": Role.ACTIVE, "party": "a", "run_id": "r", "task": Task.TRAIN, "n_rows": 3}
COLUMN = {
    "name": "c0",
    "n_ranks": 5,
    "has_missing": False,
    "digest": "0" * 64,
    "mechanism": "global",
    "law": "clamped",
    "epsilon": 0.1,
}
RANKS = {"column": 0, "start": 0, "ranks": np.arange(3, dtype=np.uint8)}
SPLITS = {"columns": np.zeros(2, np.uint32), "ranks": np.zeros(2, np.uint32), "missing_left": np.zeros(2, np.bool_)}
ANSWERS = {"status": np.ones(2, np.uint8), "bits": np.zeros((2, 1), np.uint8)}
ROWS = {"start": 0, "rows": np.zeros((2, 33), np.uint8)}
VALID: list[tuple[type[Message], dict[str, object]]] = [
    (Hello, HELLO),
    (IdConfirmation, {"tag": bytes(32)}),
    (OrderShare, {"random": bytes(32)}),
    (HeldOutShares, {"shares": (bytes(32), bytes(32))}),
    (BlindedIds, ROWS),
    (ReblindedIds, ROWS),
    (TransferPoints, {"rows": ROWS["rows"]}),
    (TransferAnswer, {"point": bytes(32)}),
    (HiddenIds, {"number": 1, "columns": ROWS["rows"], "tags": ROWS["rows"]}),
    (MoreIds, {}),
    (CommonIds, {"bits": np.zeros(1, np.uint8)}),
    (OfferedColumn, COLUMN),
    (Held, {"offer": "f" * 64, "column": 1, "row": 7}),
    (Offer, {"columns": (), "guarantee": {}}),
    (RankChunk, RANKS),
    (MoreRanks, {}),
    (SplitRanks, SPLITS),
    (Thresholds, {"router": None}),
    (Ask, {"ids": ("x",), "desensitized": True}),
    (Answers, ANSWERS),
    (Heartbeat, {}),
    (Done, {}),
    (Abort, {"phase": "greeting", "reason": "because"}),
]


def test_every_message_is_registered_under_its_own_kind() -> None:
    declared = {
        value
        for value in vars(messages).values()
        if inspect.isclass(value) and issubclass(value, Message) and value not in (Message, OfferedColumn, Terms, Held)
    }
    assert set(MESSAGES.values()) == declared
    assert all(MESSAGES[message.kind] is message for message in declared)


def test_the_sequence_diagram_names_every_message() -> None:
    assert messages.__doc__ is not None
    assert [message.__name__ for message in MESSAGES.values() if message.__name__ not in messages.__doc__] == []


@pytest.mark.parametrize(("kind", "fields"), VALID, ids=lambda value: getattr(value, "kind", ""))
def test_a_message_is_frozen_and_refuses_unknown_and_missing_fields(
    kind: type[Message], fields: dict[str, object]
) -> None:
    message = kind(**fields)
    with pytest.raises(ValidationError, match="extra_forbidden"):
        kind(**fields, comment="hidden")
    for name in fields:
        with pytest.raises(ValidationError, match="missing"):
            kind(**{key: value for key, value in fields.items() if key != name})
        with pytest.raises(ValidationError, match="frozen"):
            setattr(message, name, fields[name])


@pytest.mark.parametrize(
    ("kind", "fields", "name", "wrong"),
    [
        (Hello, HELLO, "role", "boss"),
        (Hello, HELLO, "task", "guess"),
        (Hello, HELLO, "party", ""),
        (Hello, HELLO, "party", "x" * 201),
        (Hello, HELLO, "n_rows", -1),
        (Hello, HELLO, "n_rows", 3.0),
        (Hello, HELLO, "n_rows", True),
        (Hello, {**HELLO, "alignment": "psi"}, "alignment", "x" * 201),
        (Hello, HELLO, "id_point", bytes(32)),
        (IdConfirmation, {"tag": bytes(32)}, "tag", bytes(33)),
        (OrderShare, {"random": bytes(32)}, "random", bytes(31)),
        (OrderShare, {"random": bytes(32)}, "random", "x" * 32),
        (BlindedIds, ROWS, "start", -1),
        (BlindedIds, ROWS, "rows", np.zeros(33, np.uint8)),
        (ReblindedIds, ROWS, "rows", np.zeros((2, 33), np.uint32)),
        (CommonIds, {"bits": np.zeros(1, np.uint8)}, "bits", np.zeros((1, 1), np.uint8)),
        (Hello, HELLO, "held", {"offer": "f" * 63, "column": 1, "row": 7}),
        (Hello, HELLO, "plan", {"objective": 3}),
        (OfferedColumn, COLUMN, "digest", "F" * 64),
        (OfferedColumn, COLUMN, "n_ranks", -1),
        (OfferedColumn, COLUMN, "has_missing", 1),
        (OfferedColumn, COLUMN, "epsilon", "0.1"),
        (RankChunk, RANKS, "start", -1),
        (RankChunk, RANKS, "ranks", [0, 1, 2]),
        (RankChunk, RANKS, "ranks", np.zeros(3)),
        (RankChunk, RANKS, "ranks", np.zeros(3, np.int32)),
        (RankChunk, RANKS, "ranks", np.zeros(3, ">u2")),
        (RankChunk, RANKS, "ranks", np.zeros(3, np.uint64)),
        (RankChunk, RANKS, "ranks", np.zeros((3, 1), np.uint8)),
        (RankChunk, RANKS, "ranks", np.array([object()])),
        (SplitRanks, SPLITS, "columns", np.zeros(2, np.uint8)),
        (SplitRanks, SPLITS, "missing_left", np.zeros(2, np.uint8)),
        (Ask, {"ids": ("x",), "desensitized": True}, "ids", (1,)),
        (Ask, {"ids": ("x",), "desensitized": True}, "desensitized", "yes"),
        (Answers, ANSWERS, "bits", np.zeros(2, np.uint8)),
        (Answers, ANSWERS, "status", np.ones((2, 1), np.uint8)),
        (Answers, ANSWERS, "status", np.ones(2, np.bool_)),
        (Hello, HELLO, "max_rows", 0),
        (Hello, HELLO, "comes_again", 1),
        (Thresholds, {"router": None}, "router", {"x": object()}),
    ],
)
def test_a_field_of_the_wrong_type_range_or_shape_is_refused(
    kind: type[Message], fields: dict[str, object], name: str, wrong: object
) -> None:
    with pytest.raises(ValidationError) as refusal:
        kind(**{**fields, name: wrong})
    assert {error["loc"][0] for error in refusal.value.errors()} == {name}


@pytest.mark.parametrize("name", sorted(SPLITS))
def test_split_tests_come_in_arrays_of_one_length(name: str) -> None:
    with pytest.raises(ValidationError, match="must have one length"):
        SplitRanks(**{**SPLITS, name: SPLITS[name][:1]})


@pytest.mark.parametrize("status", [max(RecordStatus) + 1, 255])
def test_a_status_that_this_version_does_not_know_is_refused(status: int) -> None:
    Answers(**{**ANSWERS, "status": np.array([max(RecordStatus), 0], np.uint8)})
    with pytest.raises(ValidationError, match="a status that this version does not know"):
        Answers(**{**ANSWERS, "status": np.array([0, status], np.uint8)})


@pytest.mark.parametrize("dtype", ["|u1", "<u2", "<u4"])
def test_ranks_travel_in_any_of_three_unsigned_types(dtype: str) -> None:
    assert RankChunk(column=0, start=0, ranks=np.arange(3, dtype=dtype)).ranks.dtype.str == dtype


def test_an_offer_has_no_place_for_bounds_categories_or_values() -> None:
    assert set(OfferedColumn.model_fields) == {
        "name",
        "n_ranks",
        "has_missing",
        "digest",
        "mechanism",
        "law",
        "epsilon",
        "codes",
        # Ranks behind which the agreed grid cuts: a function of the release, too.
        "cuts",
    }
    # Only who shares thresholds offers what answers for the cells.
    assert set(Offer.model_fields) == {"columns", "guarantee", "router"}


def test_the_active_party_has_no_message_that_could_carry_labels_gradients_or_scores() -> None:
    fractional = {name for name, m in MESSAGES.items() if any(f.annotation is float for f in m.model_fields.values())}
    assert fractional == set()
    assert {name: set(MESSAGES[name].model_fields) for name in ("split ranks", "ask")} == {
        "split ranks": {"columns", "ranks", "missing_left"},
        "ask": {"ids", "desensitized"},
    }

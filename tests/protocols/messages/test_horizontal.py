"""What those who train horizontally can say: closed fields, closed types, and nothing beyond the sequence diagram."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.messages import horizontal as horizontal_messages
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import (
    HORIZONTAL_MESSAGES,
    AddUp,
    Commitments,
    Confirmed,
    Divide,
    FinishTree,
    Join,
    Masked,
    Members,
    ParcelFor,
    PassTree,
    Place,
    Reveal,
    Reveals,
    Shares,
    StartTree,
    Survivors,
    TakeTurns,
    Unmask,
    WantHistograms,
    WantTotals,
    Welcome,
)
from protocols.messages.message import Message
from protocols.messages.registry import MESSAGE_TYPES
from protocols.messages.vertical import MESSAGES
from protocols.secure_aggregation.epochs import DIGESTS_BYTES, MAX_WORKERS, SEALED_BYTES
from protocols.secure_aggregation.masking import CONFIRMATION_BYTES, SEED_BYTES, TAG_BYTES
from protocols.secure_aggregation.sharing import SECRET_BYTES
from protocols.transport.codec import decode, encode

FLAGS = np.array([True, False, True])
NODES = np.arange(3, dtype=np.int32)
BYTES = np.zeros((3, 48), np.uint8)
PARCEL = {"sealed": BYTES, "seeds": b"s" * 112, "mark": bytes(32), "digests": np.zeros((3, DIGESTS_BYTES), np.uint8)}
SPLITS = {name: NODES for name in ("nodes", "columns", "cuts")}
EXAMPLES: list[Message] = [
    Join(
        party="w",
        run_id="r",
        terms={"epsilon": 1.0, "columns": ["a"]},
        key=bytes(32),
        commitment=bytes(32),
        answered=0,
        is_secure=True,
    ),
    Welcome(terms={"epsilon": 1.0}),
    Commitments(names=("a", "b", "c"), rows=np.zeros((3, 32), np.uint8), is_open=True),
    Reveal(random=bytes(32)),
    Reveals(rows=np.zeros((3, 32), np.uint8)),
    Members(epoch=1, names=("a", "b", "c"), keys=np.zeros((3, 32), np.uint8), round=0),
    ParcelFor(epoch=1, round=0, **PARCEL),
    StartTree(output=0),
    Divide(levels=np.array([1, 2], np.int32), **SPLITS, missing_left=FLAGS),
    WantTotals(nodes=NODES),
    WantHistograms(nodes=NODES),
    AddUp(n_wanted=1, epoch=1, round=0, present=FLAGS),
    Masked(epoch=1, round=0, vector=np.array([2**64 - 1, 0], np.uint64), **PARCEL),
    Survivors(epoch=1, round=0, survivors=FLAGS),
    Confirmed(epoch=1, round=0, rows=np.zeros((3, 32), np.uint8)),
    Unmask(epoch=1, round=0, sealed=BYTES, confirmations=np.zeros((3, 32), np.uint8)),
    Shares(epoch=1, round=0, rows=np.zeros((3, 16), np.uint8), confirmed=FLAGS),
    FinishTree(values=np.array([0.0, -0.25, 1e-300])),
    Place(cuts=np.array([[0.25, 0.5], [1.0, 2.0]])),
    TakeTurns(party="w", run_id="r", terms={"epsilon": 1.0, "order": ["w", "v"]}, n_held=2),
    PassTree(
        turn=2,
        epsilon=1.0,
        is_secure=True,
        columns=NODES,
        thresholds=np.array([1.5, 0, 0]),
        missing_left=FLAGS,
        lefts=NODES,
        rights=NODES,
        values=np.array([0.0, -0.25, 1e-300]),
    ),
]


def test_every_message_is_in_the_vocabulary_under_a_kind_of_its_own() -> None:
    declared = {
        found
        for _, found in inspect.getmembers(horizontal_messages, inspect.isclass)
        if issubclass(found, Message) and found is not Message
    }
    assert set(HORIZONTAL_MESSAGES.values()) == declared == {type(example) for example in EXAMPLES}
    assert {**MESSAGES, **HORIZONTAL_MESSAGES, Compare.kind: Compare} == MESSAGE_TYPES
    assert not set(MESSAGES) & set(HORIZONTAL_MESSAGES)


def test_the_sequence_diagram_names_every_message() -> None:
    text = horizontal_messages.__doc__ or ""
    names = [message.__name__.removesuffix("For") for message in HORIZONTAL_MESSAGES.values()]
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.kind)
def test_what_one_side_encodes_the_other_decodes(message: Message) -> None:
    found = decode([bytes(frame) for frame in encode(message)])
    assert type(found) is type(message)
    for name in type(message).model_fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(message, name))


@pytest.mark.parametrize("n", [2, MAX_WORKERS])
def test_what_workers_say_in_a_sum_of_the_most_workers_has_room(n: int) -> None:
    sealed = np.zeros((n, SEALED_BYTES), np.uint8)
    parcel: dict[str, Any] = {"sealed": sealed, "seeds": bytes(n * SEED_BYTES + TAG_BYTES), "mark": bytes(32)}
    parcel["digests"] = np.zeros((n, DIGESTS_BYTES), np.uint8)
    flags, confirmations = np.ones(n, np.bool_), np.zeros((n, CONFIRMATION_BYTES), np.uint8)
    of_round: dict[str, Any] = {"epoch": 1, "round": 0}
    for message in (
        ParcelFor(**of_round, **parcel),
        Masked(**of_round, **parcel, vector=np.zeros(1, np.uint64)),
        Survivors(**of_round, survivors=flags),
        Confirmed(**of_round, rows=confirmations),
        Unmask(**of_round, sealed=sealed, confirmations=confirmations),
        Shares(**of_round, rows=np.zeros((n, SECRET_BYTES), np.uint8), confirmed=flags),
    ):
        assert type(decode([bytes(frame) for frame in encode(message)])) is type(message)
    with pytest.raises(ValidationError, match="seeds"):
        ParcelFor(**of_round, **{**parcel, "seeds": bytes(MAX_WORKERS * SEED_BYTES + TAG_BYTES + 1)})


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(2, np.int64), np.zeros(2, np.uint32), np.zeros((2, 1), np.uint64), np.zeros(2, np.float64), [0, 1]],
    ids=["signed", "smaller field", "two dimensions", "real", "list"],
)
def test_a_masked_vector_is_of_numbers_modulo_2_to_the_64_and_nothing_else(wrong: object) -> None:
    with pytest.raises(ValidationError):
        Masked(epoch=1, round=0, vector=wrong, **PARCEL)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 1 << 32},
        {"round": 1 << 63},
        {"keys": np.zeros((2, 32), np.uint8)},
        {"keys": np.zeros((3, 1), np.uint8)},
        {"names": ("a",) * (MAX_WORKERS + 1), "keys": np.zeros((MAX_WORKERS + 1, 32), np.uint8)},
    ],
    ids=["epoch", "round", "too few keys", "short keys", "too many workers"],
)
def test_a_list_of_workers_that_no_epoch_could_have_is_refused_when_it_is_read(change: dict[str, object]) -> None:
    sound = {"epoch": 1, "names": ("a", "b", "c"), "keys": np.zeros((3, 32), np.uint8), "round": 0}
    Members(**sound)
    with pytest.raises(ValidationError):
        Members(**{**sound, **change})


@pytest.mark.parametrize("shape", [(3, 31), (3, 33), (MAX_WORKERS + 1, 32)])
def test_confirmations_are_of_32_bytes_for_as_many_workers_as_there_may_be(shape: tuple[int, int]) -> None:
    rows = np.zeros(shape, np.uint8)
    with pytest.raises(ValidationError):
        Confirmed(epoch=1, round=0, rows=rows)
    with pytest.raises(ValidationError):
        Unmask(epoch=1, round=0, sealed=BYTES, confirmations=rows)


ANSWERS = ("join", "masked", "confirmed", "shares", "parcel")


def test_a_worker_has_no_message_that_could_carry_rows_counts_or_sums_in_clear() -> None:
    fields = {kind: set(HORIZONTAL_MESSAGES[kind].model_fields) for kind in ANSWERS}
    parcel = {"epoch", "round", "sealed", "seeds", "mark", "digests"}
    assert fields == {
        "join": {"party", "run_id", "terms", "key", "commitment", "answered", "is_secure"},
        "masked": {*parcel, "vector"},
        "confirmed": {"epoch", "round", "rows"},
        "shares": {"epoch", "round", "rows", "confirmed"},
        "parcel": parcel,
    }

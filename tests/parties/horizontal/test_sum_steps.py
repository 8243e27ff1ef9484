"""Steps of a round: answers of this round alone count, a malformed one costs its sender the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.horizontal.sum_steps import SumSteps
from protocols.errors import SumRefused
from protocols.messages.horizontal import Confirmed, Masked
from protocols.messages.vertical import Done
from protocols.secure_aggregation.epochs import DIGESTS_BYTES, SEALED_BYTES
from protocols.secure_aggregation.masking import CONFIRMATION_BYTES, SEED_BYTES, TAG_BYTES

NAMES = ("w0", "w1", "w2")


def masked(number: int = 7, epoch: int = 1) -> Masked:
    return Masked(
        epoch=epoch,
        round=number,
        vector=np.zeros(2, "<u8"),
        sealed=np.zeros((3, SEALED_BYTES), np.uint8),
        seeds=bytes(3 * SEED_BYTES + TAG_BYTES),
        mark=bytes(SEED_BYTES),
        digests=np.zeros((3, DIGESTS_BYTES), np.uint8),
    )


class Round:
    """A round that takes vectors of w0 and w1, and refuses those of w2."""

    number = 7
    survivors = np.array([True, False, True])
    epoch = SimpleNamespace(number=1, names=NAMES, threshold=2, n_workers=3)

    def __init__(self) -> None:
        self.added: list[int] = []

    def add(self, place: int, vector: object) -> None:
        if place == 2:
            raise SumRefused("malformed")
        self.added.append(place)

    add_confirmations = add

    def close(self) -> np.ndarray:
        return self.survivors


class Connections:
    """Everybody says what was prepared."""

    def __init__(self, said: list[tuple[str, Any]]) -> None:
        self.all = {name: SimpleNamespace(name=name) for name in NAMES}
        self._said = said
        self.expelled: list[tuple[str, str]] = []
        self.sent: list[tuple[str, Any]] = []

    def answers(self, names: Any, seconds: float, came: set[str]) -> Any:
        return ((self.all[name], message) for name, message in self._said)

    def expel(self, worker: Any, why: str) -> None:
        self.expelled.append((worker.name, why))

    def send(self, worker: Any, message: Any) -> None:
        self.sent.append((worker.name, message))


def steps(said: list[tuple[str, Any]]) -> tuple[SumSteps, Round, Connections, list[Any], list[Any]]:
    of, connections, parcels, odd = Round(), Connections(said), list[Any](), list[Any]()
    made = SumSteps(
        of,  # type: ignore[arg-type]
        connections,  # type: ignore[arg-type]
        patience_s=1,
        keep_parcel=lambda worker, message, epoch, number: parcels.append((worker.name, number)),
        unexpected=lambda worker, message: odd.append(worker.name),
    )
    return made, of, connections, parcels, odd


def test_vectors_of_this_round_are_added_with_a_parcel_for_the_next() -> None:
    made, of, connections, parcels, odd = steps([("w0", masked()), ("w1", masked(6)), ("w1", masked(epoch=2))])
    made.collect_vectors(NAMES)
    assert (of.added, parcels, odd, connections.expelled) == ([0], [("w0", 8)], [], [])


def test_a_malformed_vector_costs_its_sender_the_run_and_another_message_is_judged_elsewhere() -> None:
    made, of, connections, parcels, odd = steps([("w2", masked()), ("w1", Done()), ("w0", masked())])
    made.collect_vectors(NAMES)
    assert (of.added, parcels) == ([0], [("w0", 8)])
    assert connections.expelled == [("w2", "malformed")]
    assert odd == ["w1"]


@pytest.mark.parametrize("said", [[], ["w0"]])
def test_survivors_alone_are_asked_to_confirm_and_who_did_is_returned(said: list[str]) -> None:
    confirmed = Confirmed(epoch=1, round=7, rows=np.zeros((3, CONFIRMATION_BYTES), np.uint8))
    made, _, connections, _, _ = steps([(name, confirmed) for name in said])
    assert made.collect_confirmations() == said
    assert [name for name, _ in connections.sent] == ["w0", "w2"]


class Opening:
    """What is noted about an opening."""

    def __init__(self, before: tuple[str, ...] = (), bound: tuple[str, ...] = ()) -> None:
        self.before = frozenset(before)
        self.noted: list[Any] = []
        self._bound = bound

    def free(self, names: Any, survivors: Any) -> list[str]:
        return [name for name in names if name not in self._bound]

    def note_asked(self, asked: Any, survivors: Any) -> None:
        self.noted.append((asked, survivors))


@pytest.mark.parametrize(("said", "bound"), [(["w0"], ()), (["w0", "w2"], ("w2",))])
def test_a_sum_that_too_few_confirm_or_may_give_shares_of_is_opened_over_nobody_and_begins_anew(
    said: list[str], bound: tuple[str, ...]
) -> None:
    confirmed = Confirmed(epoch=1, round=7, rows=np.zeros((3, CONFIRMATION_BYTES), np.uint8))
    made, of, connections, _, _ = steps([(name, confirmed) for name in said])
    of.add_confirmations = lambda place, rows: None  # type: ignore[method-assign]
    opening = Opening(bound=bound)
    assert made.opened(opening) is None  # type: ignore[arg-type]
    assert (opening.noted, {message.kind for _, message in connections.sent}) == ([], {"survivors"})


def test_a_sum_that_may_have_been_opened_is_not_opened_over_others() -> None:
    made, _, connections, _, _ = steps([])
    opening = Opening(("w0", "w1", "w2"))
    assert made.opened(opening) is None  # type: ignore[arg-type]
    assert (opening.noted, connections.sent) == ([], [])

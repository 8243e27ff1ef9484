"""Fault attribution: a worker that must be at fault is expelled, of two that may be both are named, each once."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.horizontal.share_faults import ConfirmationFaults, ShareFaults

NAMES = ("w0", "w1", "w2", "w3", "w4")
EPOCH: Any = SimpleNamespace(names=NAMES, threshold=3)


class Connections:
    def __init__(self) -> None:
        self.all = {name: name for name in NAMES}
        self.expelled: list[tuple[str, str]] = []

    def expel(self, worker: str, why: str) -> None:
        self.expelled.append((worker, why))


def judged(
    *rounds: Any, confirmations: Any = (), epoch: Any = EPOCH
) -> tuple[Connections, list[tuple[str, str]], ShareFaults]:
    connections, notes = Connections(), list[tuple[str, str]]()
    faults = ShareFaults(connections, note=lambda event, sentence: notes.append((event, sentence)))  # type: ignore[arg-type]
    for wrong in rounds:
        of: Any = SimpleNamespace(
            epoch=epoch, wrong_shares=frozenset(wrong), wrong_confirmations=frozenset(confirmations)
        )
        faults.judge(of)
    return connections, notes, faults


def test_a_pair_is_named_once() -> None:
    connections, notes, _ = judged({(1, 3)}, {(1, 3)})
    assert connections.expelled == []
    assert [event for event, _ in notes] == ["wrong share"]
    assert "w1's share of w3's secret is wrong or lacking" in notes[0][1]


@pytest.mark.parametrize("n_wrong", [1, 2, 3, 4])
def test_as_many_as_the_threshold_cannot_all_have_dealt_wrongly(n_wrong: int) -> None:
    connections, notes, _ = judged({(0, other) for other in range(1, 1 + n_wrong)})
    is_expelled = n_wrong >= EPOCH.threshold
    assert [name for name, _ in connections.expelled] == ["w0"] * is_expelled
    assert len(notes) == (0 if is_expelled else n_wrong)


@pytest.mark.parametrize("n_wrong", [1, 2, 3, 4])
def test_as_many_as_the_threshold_cannot_all_have_sent_wrong_shares(n_wrong: int) -> None:
    """Their dealer sent wrong digests, and they are not named."""
    connections, notes, _ = judged({(holder, 4) for holder in range(n_wrong)})
    is_expelled = n_wrong >= EPOCH.threshold
    assert [name for name, _ in connections.expelled] == ["w4"] * is_expelled
    assert len(notes) == (0 if is_expelled else n_wrong)
    if is_expelled:
        assert "it sent digests that the shares of w0, w1, w2" in connections.expelled[0][1]


def honest_expelled(n: int, threshold: int, *, judged_by: int) -> int:
    """How often an honest worker is expelled: all coalitions below the threshold, all that they can make look wrong.

    Whatever they send, what is between two honest workers is right.
    """
    epoch: Any = SimpleNamespace(names=NAMES[:n], threshold=judged_by)
    found = 0
    for n_liars in range(1, threshold):
        for liars in itertools.combinations(range(n), n_liars):
            theirs = [pair for pair in itertools.product(range(n), repeat=2) if set(pair) & set(liars)]
            for is_wrong in itertools.product((False, True), repeat=len(theirs)):
                wrong = list(itertools.compress(theirs, is_wrong))
                expelled = {name for name, _ in judged(wrong, confirmations=wrong, epoch=epoch)[0].expelled}
                found += not expelled <= {NAMES[liar] for liar in liars}
    return found


@pytest.mark.parametrize(("n", "threshold"), [(2, 2), (3, 2), (3, 3), (4, 3)])
def test_no_coalition_below_the_threshold_has_an_honest_worker_expelled(n: int, threshold: int) -> None:
    assert honest_expelled(n, threshold, judged_by=threshold) == 0


def test_one_word_less_would_let_a_coalition_have_honest_workers_expelled() -> None:
    assert honest_expelled(4, 3, judged_by=2) > 0


def test_a_wrong_share_of_its_own_secret_is_a_workers_own_fault() -> None:
    connections, _, _ = judged({(2, 2)})
    assert [name for name, _ in connections.expelled] == ["w2"]


def test_confirmations_are_judged_apart_from_shares() -> None:
    connections, notes, _ = judged({(1, 3)}, confirmations={(1, 3)})
    assert [event for event, _ in notes] == ["wrong share", "wrong confirmation"]
    assert connections.expelled == []
    shares, others = {(1, 0), (1, 2)}, {(1, 3), (1, 4)}
    assert judged(shares, confirmations=others)[0].expelled == []


@pytest.mark.parametrize("n_wrong", [1, 2, 3, 4])
def test_as_many_as_the_threshold_cannot_all_have_confirmed_wrongly(n_wrong: int) -> None:
    """A worker that says so is at fault itself, and its word counts no more."""
    connections, notes, faults = judged(set(), confirmations={(author, 4) for author in range(n_wrong)})
    is_expelled = n_wrong >= EPOCH.threshold
    assert [name for name, _ in connections.expelled] == ["w4"] * is_expelled
    assert [event for event, _ in notes] == ["wrong confirmation"] * (0 if is_expelled else n_wrong)
    words = str(faults.no_sum())
    assert ("w0's confirmation to w4 is wrong, as w4 says" in words) is not is_expelled
    assert ("may have given shares of it over others" in words) is is_expelled
    assert words.endswith("Nothing more was released")


def test_a_worker_names_once_whose_confirmation_to_it_is_wrong() -> None:
    """Who sent none, or did not survive, sent no wrong one."""
    notes = list[tuple[str, str]]()
    faults = ConfirmationFaults(note=lambda event, sentence: notes.append((event, sentence)))
    rows = np.ones((5, 32), np.uint8)
    rows[2] = 0
    for confirmed in ([True, True, False, False, False], [True, False, False, False, False]):
        faults.judge(EPOCH, NAMES[:4], rows, np.array(confirmed))
    assert [event for event, _ in notes] == ["wrong confirmation"] * 2
    assert [sentence.split("'")[0] for _, sentence in notes] == ["w3", "w1"]

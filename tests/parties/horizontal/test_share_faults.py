"""Fault attribution: a worker that must be at fault is expelled, of two that may be both are named, each once."""

from __future__ import annotations

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


def judged(*rounds: Any, confirmations: Any = ()) -> tuple[Connections, list[tuple[str, str]], ShareFaults]:
    connections, notes = Connections(), list[tuple[str, str]]()
    faults = ShareFaults(connections, note=lambda event, sentence: notes.append((event, sentence)))  # type: ignore[arg-type]
    for wrong in rounds:
        of: Any = SimpleNamespace(
            epoch=EPOCH, wrong_shares=frozenset(wrong), wrong_confirmations=frozenset(confirmations)
        )
        faults.judge(of)
    return connections, notes, faults


def test_a_pair_is_named_once_and_its_holder_is_doubted_from_then_on() -> None:
    connections, notes, faults = judged({(1, 3)}, {(1, 3)})
    assert connections.expelled == []
    assert [event for event, _ in notes] == ["wrong share"]
    assert "w1's share of w3's secret is wrong or lacking" in notes[0][1]
    assert faults.doubted(EPOCH) == {1}


@pytest.mark.parametrize("n_wrong", [1, 2, 3, 4])
def test_as_many_as_the_threshold_cannot_all_have_dealt_wrongly(n_wrong: int) -> None:
    connections, notes, _ = judged({(0, other) for other in range(1, 1 + n_wrong)})
    is_expelled = n_wrong >= EPOCH.threshold
    assert [name for name, _ in connections.expelled] == ["w0"] * is_expelled
    assert len(notes) == (0 if is_expelled else n_wrong)


def test_a_wrong_share_of_its_own_secret_is_a_workers_own_fault() -> None:
    connections, _, _ = judged({(2, 2)})
    assert [name for name, _ in connections.expelled] == ["w2"]


def test_confirmations_are_judged_apart_from_shares() -> None:
    connections, notes, faults = judged({(1, 3)}, confirmations={(1, 3)})
    assert [event for event, _ in notes] == ["wrong share", "wrong confirmation"]
    assert connections.expelled == []
    assert judged(set(), confirmations={(4, 0)})[2].doubted(EPOCH) == frozenset()
    assert faults.doubted(EPOCH) == {1}


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

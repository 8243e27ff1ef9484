"""Sums of a ledger's lines: those that were taken up again go on as if every line had been counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parties.ledger import ledger_lines as lines
from parties.ledger.ledger_lines import Occasion, records_digest
from parties.ledger.ledger_sums import LedgerSums
from parties.tables.key_sets import KeySet
from tests.support.numbered_names import names

SETS = {records_digest(names(range(n))): names(range(n)) for n in range(1, 6)}


def records(digest: str) -> KeySet:
    return SETS[digest]


def occasion(peer: str = "bank", run_id: str = "spring", task: str = "train") -> Occasion:
    return Occasion(run_id=run_id, task=task, peer=peer)


def some_lines() -> list[dict[str, Any]]:
    return [
        lines.records_fields("released", names(range(3)), occasion()),
        lines.records_fields("held_out", names(range(2)), occasion()),
        lines.records_fields("released", names(range(3)), occasion("other")),
        lines.tests_fields([("f", None, 0.5, False), ("f", None, 1.5, False)], occasion()),
        lines.tests_fields([("f", None, 0.5, False)], occasion(run_id="summer")),
        lines.tests_fields([("f", None, 0.5, False)], occasion("other")),
    ]


def test_sets_are_told_by_peer_and_by_whether_they_were_held_out() -> None:
    sums = LedgerSums(records)
    for line in some_lines():
        sums.count(line)
    assert sums.trained("bank") == [records_digest(names(range(3)))]
    assert sums.trained("bank", held_out=True) == [records_digest(names(range(2)))]
    assert sums.trained("nobody") == []
    assert len(sums.all_trained()) == 2


def test_tests_are_told_by_peer_and_run_and_counted_by_column() -> None:
    sums = LedgerSums(records)
    for line in some_lines():
        sums.count(line)
    sums.families["f"] = "spend"
    assert (len(sums.tests("bank")), len(sums.tests("bank", "summer")), len(sums.tests("bank", "autumn"))) == (2, 1, 0)
    assert (sums.n_tests("spend"), sums.n_tests("age")) == (3, 0)


@pytest.mark.parametrize("kept", range(7))
def test_sums_that_were_taken_up_are_those_of_all_lines(kept: int) -> None:
    all_lines = some_lines()
    whole, first = LedgerSums(records), LedgerSums(records)
    for line in all_lines:
        whole.count(line)
    for line in all_lines[:kept]:
        first.count(line)
    again = LedgerSums(records)
    again.take_up(json.loads(json.dumps(first.to_dict())))
    for line in all_lines[kept:]:
        again.count(line)
    assert again.to_dict() == whole.to_dict()
    assert again.trained_digest() == whole.trained_digest()
    # Only the first three are releases for training.
    assert (first.trained_digest() == whole.trained_digest()) == (kept >= 3)


@pytest.mark.parametrize("line", [{"kind": "unknown"}, {"kind": "reuse"}, {}])
def test_a_line_of_another_version_is_an_error(line: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        LedgerSums(records).count(line)

"""What leaves a party that has to stop names no place on its disk, nothing of its data, and no other peer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pytest

import opboost.errors
import parties.errors
import protocols.errors
from parties.errors import ChainBroken, Disagreement, LedgerError, Stopped, TreesDiffer, WorkersLost
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.session.termination import NO_REASON, termination_message
from protocols.errors import (
    DecodeError,
    NothingInCommon,
    PeerAborted,
    PeerLost,
    SumRefused,
    TooFewWorkers,
    UnexpectedMessage,
    VersionMismatch,
)

Outcomes = Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]]

ALL = [
    error
    for module in (opboost.errors, parties.errors, protocols.errors)
    for _, error in inspect.getmembers(module, inspect.isclass)
    if issubclass(error, BaseException) and error.__module__ == module.__name__
]

# Made from what came over the wire, or agreed on; everything else is told by its kind.
PASSED_ON = {
    ChainBroken,
    DecodeError,
    Disagreement,
    NothingInCommon,
    SumRefused,
    TreesDiffer,
    UnexpectedMessage,
    VersionMismatch,
    opboost.errors.RankError,
}


@pytest.mark.parametrize("kind", [*ALL, OSError, KeyError, ValueError], ids=lambda kind: kind.__name__)
def test_only_sentences_about_the_talk_are_passed_on(kind: type[BaseException]) -> None:
    is_signal = kind is parties.errors.Stopped
    error = kind(15) if is_signal else kind("/home/mia/customers.csv: column 'income' holds 81726354")
    told = termination_message(error, peer="shop", others={"shop", "post"})
    assert (told == str(error)) is (kind in PASSED_ON)
    assert kind in PASSED_ON or not [word for word in ("/", "income", "81726354") if word in told]
    is_told = kind in PASSED_ON or issubclass(
        kind, LedgerError | Stopped | WorkersLost | PeerAborted | PeerLost | TooFewWorkers
    )
    assert (told == NO_REASON) is not is_told


@pytest.mark.parametrize("kind", sorted(PASSED_ON - {ChainBroken, TreesDiffer}, key=lambda kind: kind.__name__))
@pytest.mark.parametrize(
    ("sentence", "is_about_post"),
    [
        ("post sent a rank above 2 in column 0, which has 3 ranks", True),
        ("the ranks of column 0 of post are not those that were offered", True),
        ("its owner is post.", True),
        ("'post' and this party do not agree", True),
        ("post.office sent nothing", False),
        ("a compost heap sent nothing", False),
        ("shop sent a rank above 2 in column 0", False),
    ],
)
def test_what_concerns_one_peer_is_not_for_the_others(
    kind: type[BaseException], sentence: str, is_about_post: bool
) -> None:
    error, peers = kind(sentence), {"shop", "post"}
    assert termination_message(error, peer="post", others=peers) in (
        sentence,
        termination_message(error, peer="post", others={"shop"}),
    )
    assert (termination_message(error, peer="shop", others=peers) == sentence) is not is_about_post


def test_settings_that_allow_no_run_are_named_here_and_not_at_the_peer(sites: Any, outcomes: Outcomes) -> None:
    """Of one common record none can be held out: that shows only once the records are aligned."""
    sites.shop.table = pd.concat([sites.shop.table.head(1), sites.shop.table.tail(9).assign(id=list("abcdefghi"))])
    sites.bank.run["model"] = {"validation_fraction": 0.2}
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": "psi"}
    found = outcomes(
        {
            "bank": lambda: train_active(sites.bank.write(), insecure=False, terminal=Terminal()),
            "shop": lambda: train_passive(sites.shop.write(), insecure=False, terminal=Terminal()),
        }
    )
    assert str(found["bank"]) == (
        "of 1 records a share of 0.2 leaves 1 to train on and 0 to validate; both need one. Nothing was released"
    )
    assert isinstance(found["shop"], PeerAborted)
    assert str(found["shop"]) == f"bank ended the run while checking the common records: {NO_REASON}"

"""What leaves a party that has to stop names no place on its disk, nothing of its data, and no other peer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import opboost.errors
import parties.errors
import protocols.errors
from parties.errors import ChainBroken, Disagreement, TableError
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.session.termination import last_words
from protocols.errors import DecodeError, NothingInCommon, PeerAborted, SumRefused, UnexpectedMessage, VersionMismatch

Outcomes = Callable[[float, Mapping[str, Callable[[], Any]]], dict[str, Any]]

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
    UnexpectedMessage,
    VersionMismatch,
    opboost.errors.RankError,
}


@pytest.mark.parametrize("kind", [*ALL, OSError, KeyError, ValueError], ids=lambda kind: kind.__name__)
def test_only_sentences_about_the_talk_are_passed_on(kind: type[BaseException]) -> None:
    is_signal = kind is parties.errors.Stopped
    error = kind(15) if is_signal else kind("/home/mia/customers.csv: column 'income' holds 81726354")
    told = last_words(error, peer="shop", others={"shop", "post"})
    assert (told == str(error)) is (kind in PASSED_ON)
    assert kind in PASSED_ON or not [word for word in ("/", "income", "81726354") if word in told]


@pytest.mark.parametrize("kind", sorted(PASSED_ON - {ChainBroken}, key=lambda kind: kind.__name__))
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
    assert last_words(error, peer="post", others=peers) in (sentence, last_words(error, peer="post", others={"shop"}))
    assert (last_words(error, peer="shop", others=peers) == sentence) is not is_about_post


def test_a_table_that_allows_no_run_is_named_here_and_not_at_the_peer(sites: Any, outcomes: Outcomes) -> None:
    """Of the bank's records with both labels none is at the shop: that shows only once the records are aligned."""
    sites.shop.table = sites.shop.table.sort_values("id").head(100)
    sites.bank.table["y"] = sites.bank.table["id"].isin(sites.shop.table["id"]).astype(int)
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": "psi"}
    found = outcomes(
        60,
        {
            "bank": lambda: train_active(sites.bank.write(), insecure=False, terminal=Terminal()),
            "shop": lambda: train_passive(sites.shop.write(), insecure=False, terminal=Terminal()),
        },
    )
    assert isinstance(found["bank"], TableError)
    assert str(sites.bank.path) in str(found["bank"])
    assert isinstance(found["shop"], PeerAborted)
    assert str(found["shop"]).endswith("its own data do not allow this")

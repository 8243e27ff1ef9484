"""Pages of finished runs: each side's lead says what it holds, and long lists are cut with how many are left."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import pytest

from parties.reports.page import FigureGrid, Prose, to_markdown
from parties.reports.run_facts import ActiveFacts, Importance, PassiveFacts, _column_names, run_facts
from parties.reports.run_history import Step
from parties.reports.run_page import (
    MOST_COLUMNS,
    MOST_MESSAGES,
    active_page,
    history_sections,
    importance_blocks,
    passive_page,
)
from parties.reports.words import loss
from protocols.messages.message import Message
from protocols.messages.prediction import Ask
from protocols.transport.codec import encode
from tests.support.promises import COLUMN


@pytest.fixture(scope="module")
def facts(finished: Any) -> tuple[ActiveFacts, PassiveFacts]:
    bank, shop = (run_facts(site.write()) for site in (finished.bank, finished.shop))
    assert isinstance(bank, ActiveFacts)
    assert isinstance(shop, PassiveFacts)
    return bank, shop


def test_each_side_has_a_page_of_its_own(facts: tuple[ActiveFacts, PassiveFacts]) -> None:
    bank, shop = to_markdown(active_page(facts[0])), to_markdown(passive_page(facts[1]))
    assert "the model of bank" in bank
    assert "what shop released" in shop
    assert "The labels are not protected by differential privacy" in bank
    assert "spend" in shop
    assert "spend" not in bank
    assert "exact routing bits for new records and those released for training are answered" in shop
    assert "What is promised here is this run's; the section Ledger adds up what all runs released" in shop
    assert "Bits about the same labels add up" in bank


def test_seeded_noise_is_told_beside_what_was_promised(facts: tuple[ActiveFacts, PassiveFacts]) -> None:
    for is_secure in (True, False):
        found = replace(facts[1], guarantee=replace(facts[1].guarantee, is_secure=is_secure))
        first = passive_page(found).sections[0].blocks[0]
        assert isinstance(first, Prose)
        assert ("this is not for release" in first.text) is not is_secure


def test_a_report_says_that_digests_of_short_messages_let_guesses_be_checked(
    facts: tuple[ActiveFacts, PassiveFacts],
) -> None:
    """Whoever has the digest of a request about one record can try out the ids that there may be."""
    sent = digest_of_message(Ask(ids=("k0123",), desensitized=False))
    line = replace(facts[0].history.outgoing[-1], kind="ask", sha256=sent)
    bank = to_markdown(active_page(replace(facts[0], history=replace(facts[0].history, outgoing=(line,)))))
    guesses = (digest_of_message(Ask(ids=(f"k{i:04}",), desensitized=False)) for i in range(1000))
    assert [i for i, guess in enumerate(guesses) if guess in bank] == [123]
    assert "by the digest of a request about few records a guess of their ids can be checked" in bank
    shop = to_markdown(passive_page(facts[1]))
    assert all("there are few contents to try" in page for page in (bank, shop))


def digest_of_message(message: Message) -> str:
    """What the log keeps of a message."""
    return hashlib.sha256(b"".join(map(bytes, encode(message)))).hexdigest()


def test_who_shares_thresholds_has_told_what_its_columns_are_called(facts: tuple[ActiveFacts, PassiveFacts]) -> None:
    """They travel with the columns' schemas, which name them, also where the columns are offered under numbers."""
    kept, bank = to_markdown(active_page(facts[0])), replace(facts[0], shares_thresholds=("shop",))
    assert "a number can be mapped back by its owner alone." in kept
    told = "a number can be mapped back by its owner and, with the thresholds that were shared, of shop by bank"
    assert told in to_markdown(active_page(bank))
    shop = to_markdown(passive_page(replace(facts[1], shared_thresholds=True)))
    assert "Thresholds were shared, with names, bounds and categories of the columns;" in shop
    assert "Thresholds were kept;" in to_markdown(passive_page(replace(facts[1], shared_thresholds=False)))


def test_what_several_parties_release_about_the_same_people_is_added_up(
    facts: tuple[ActiveFacts, PassiveFacts],
) -> None:
    (promise,) = facts[0].guarantees.values()
    both = replace(facts[0], guarantees={"shop": promise, "mill": replace(promise, domain_loss=math.inf)})
    told = f"losses add up, to {loss(2 * promise.epsilon)} between neighbouring records and to infinite between any two"
    assert told in to_markdown(active_page(both))
    assert "has it all" not in to_markdown(active_page(facts[0]))


def test_each_sides_lead_says_what_its_time_line_tells_of_the_other_side_and_of_the_data(
    facts: tuple[ActiveFacts, PassiveFacts],
) -> None:
    """Steps of the log say how many records the other side brought, and how many values were moved to the bounds."""
    told = "1,900 records are common, of 2,000 here and 3,000 at"
    active, passive = (
        replace(one, history=replace(one.history, steps=(Step(time="", seconds=0.0, event="aligned", message=told),)))
        for one in facts
    )
    bank, shop = active_page(active), passive_page(passive)
    assert told in to_markdown(bank)
    assert told in to_markdown(shop)
    assert "and how many records they have and share" in bank.lead
    assert "of the other side how many records it has" in shop.lead
    assert "how many lay outside the public bounds" in shop.lead


def test_long_lists_are_cut_and_say_so(facts: tuple[ActiveFacts, PassiveFacts]) -> None:
    history = facts[0].history
    long = replace(history, outgoing=history.outgoing[:1] * (MOST_MESSAGES + 7), n_trained=MOST_MESSAGES + 7)
    (what_left,) = [section for section in history_sections(long) if section.heading == "What left"]
    assert [len(block.rows) for block in what_left.blocks if isinstance(block, FigureGrid)][-1] == MOST_MESSAGES
    last = what_left.blocks[-1]
    assert isinstance(last, Prose)
    assert last.text.startswith("7 more stand in report.json")


@pytest.mark.parametrize("has_gains", [False, True])
def test_importance_lists_the_first_columns_and_trees_without_gains_say_so(has_gains: bool) -> None:
    many = [Importance(owner=None, column=f"c{i}", share=1 / 30, n_splits=1) for i in range(30)]
    blocks = list(importance_blocks(many, has_gains=has_gains))
    (grid,) = [block for block in blocks if isinstance(block, FigureGrid)]
    assert len(grid.rows) == MOST_COLUMNS
    assert any(isinstance(block, Prose) for block in blocks) is not has_gains


@pytest.mark.parametrize("opaque", [False, True])
def test_the_categories_of_a_passive_column_count_as_one(opaque: bool) -> None:
    widths = {"age": 0, "town": 3, "spend": 0}
    promises = tuple(
        replace(COLUMN, column=f"column {i}" if opaque else name, parameters={"n_categories": width} if width else {})
        for i, (name, width) in enumerate(widths.items())
    )
    name_of = _column_names(promises)
    if opaque:
        assert [name_of(f"c{c}") for c in range(5)] == ["c0", "c1 to c3", "c1 to c3", "c1 to c3", "c4"]
    else:
        assert [name_of(name) for name in ("age", "town=x=1", "town=", "towns")] == ["age", "town", "town", "towns"]

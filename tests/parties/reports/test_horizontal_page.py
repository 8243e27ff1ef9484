"""Page of a finished horizontal run: a coordinator knows who took part and no score, a worker its own rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parties.reports.horizontal_facts import record_facts
from parties.reports.horizontal_page import record_page
from parties.reports.page import to_markdown


def test_a_coordinators_page_lists_workers_and_no_quality(treated: Any) -> None:
    facts = record_facts(treated.write("hub"))
    text = to_markdown(record_page(facts))
    assert "a model of the workers of hub" in text
    assert "Unknown here: the coordinator holds no rows" in text
    assert all(name in text for name in ("north", "south", "west"))
    assert "Nobody dropped out" in text
    assert "but for who took part when and who dropped out" in text
    assert "a drop\\-out takes its share with it" in text or "a drop-out takes its share with it" in text


def test_a_coordinators_page_says_that_no_promise_covers_the_scores_of_records_with_labels(treated: Any) -> None:
    facts = record_facts(treated.write("hub"))
    worker = record_facts(treated.write("south"))
    scored = "Besides, it holds statistics of the labels of records that were scored here"
    assert scored not in record_page(facts).lead
    assert scored in record_page(replace(facts, fits=worker.fits)).lead


def test_a_workers_page_has_its_rows_and_ledger(treated: Any) -> None:
    facts = record_facts(treated.write("south"))
    page = record_page(facts)
    text = to_markdown(page)
    assert "what south took part in" in text
    assert "took part with 90 rows, which it told nobody" in text
    assert "Ledger" in [section.heading for section in page.sections]
    assert "Unknown here" not in text


def test_a_worker_that_never_came_is_not_among_those_who_answered(treated: Any) -> None:
    """The plain words had all workers of the run file, and nobody who had dropped out."""
    facts = record_facts(treated.write("hub"))
    participants = tuple(replace(one, n_rounds=0) if one.name == "west" else one for one in facts.participants)
    text = to_markdown(record_page(replace(facts, participants=participants)))
    assert "hub added up answers of north, south to a model of" in text
    assert "it saw sums alone. No sum has answers of west." in text
    assert "Nobody who took part dropped out." in text
    own = record_facts(treated.write("south"))
    assert "trees; the run's others are hub, north, west." in to_markdown(record_page(own))
    assert "trees all the same, as hub told it." in to_markdown(record_page(replace(own, has_answered=False)))


def test_drop_outs_are_listed_in_place_of_the_sentence_that_there_were_none(treated: Any) -> None:
    facts = replace(record_facts(treated.write("hub")), absences=(("12:00", "west is gone"),))
    text = to_markdown(record_page(facts))
    assert "west is gone" in text
    assert "Nobody dropped out" not in text

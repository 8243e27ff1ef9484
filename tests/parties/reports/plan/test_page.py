"""Page of a plan: what is signed comes first and in plain words, and names what is let out; columns are folded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from parties.config.align_section import Method
from parties.reports.page import Page, PageSection, to_markdown
from parties.reports.plan.facts import Plan
from parties.reports.plan.page import plan_page, signature_section, words_section
from parties.reports.sentences import GRADES, Verdict
from parties.reports.writing import report_of
from parties.runs.run_folder import RunFolder
from tests.support.partitioned_sites import train_both


def text_of(section: PageSection) -> str:
    return to_markdown(Page(title="", lead="", sections=(section,)))


def with_verdicts(plan: Plan, *found: tuple[float, float]) -> Plan:
    """The same plan with other verdicts on its columns."""
    columns = []
    for column, (success, blind) in zip(plan.columns, found, strict=True):
        chosen = replace(column.chosen, verdict=Verdict(success=success, blind=blind))
        columns.append(replace(column, candidates=(chosen, *column.candidates[1:])))
    return replace(plan, columns=tuple(columns))


def without_warnings(plan: Plan) -> Plan:
    return replace(plan, warnings=(), columns=tuple(replace(column, warnings=()) for column in plan.columns))


def signed(plan: Plan) -> str:
    """What is signed, as text."""
    return text_of(signature_section(plan))


def test_what_is_signed_comes_first_in_natural_frequencies_the_worst_column_on_top(plan: Plan) -> None:
    text = signed(with_verdicts(plan, (0.09, 0.08), (0.57, 0.051)))
    assert "An attacker who sees the release guesses the exact value of visits in 57 of 100 cases; in 5 without" in text
    assert text.index("| visits | none | 57 of 100 cases; 5 without") < text.index(
        "| spend | strong | 90 of 1,000 cases"
    )
    assert "do not sign yet; change 1 of 2 columns" in text
    assert re.search(r"\| visits .*budget \d+ in place of [\d.]+: then (fair|strong), \d+ of [\d,]+ cases", text)
    assert re.search(r"\| spend .*none needed", text)
    assert "50: the release says between" in text
    assert "Name: ____________  Date: ____________  Signature: ____________" in text
    for word, times, most, most_odds in GRADES[:-1]:
        assert f"{word}, at most {times:g} times as often right" in text
        assert f"at most {100 * most:g} of 100" in text
        assert f"at odds of at most {most_odds:,.0f} to 1" in text


def test_what_is_weak_about_the_run_file_stands_above_the_signature(plan: Plan) -> None:
    assert "Nothing limits it." in signed(replace(plan, warnings=("nothing limits it",)))


def test_a_guess_says_to_what_it_is_exact_where_steps_are_coarser_than_the_column(plan: Plan) -> None:
    first, second = plan.columns
    text = signed(replace(plan, columns=(replace(first, exact_to=5.5), replace(second, exact_to=0.5, step=0.5))))
    assert re.search(rf"\| {first.promise.column} .*without the release; exact to 5\.5 \|", text)
    assert not re.search(rf"\| {second.promise.column} .*exact to", text)


def test_what_is_recommended_keeps_the_points_where_it_can(plan: Plan) -> None:
    """A Local-Map tells cells exactly, whatever its budget: another mechanism on the same points is fair."""
    first, second = with_verdicts(plan, (0.6, 0.1), (0.1, 0.1)).columns
    by_shape = {(one.settings["mechanism"], one.settings.get("domain_size")): one for one in first.candidates}
    chosen = replace(by_shape["local", 100], verdict=first.chosen.verdict)
    others = [one for one in first.candidates[1:] if one.settings["mechanism"] != "local"]
    text = signed(replace(plan, columns=(replace(first, candidates=(chosen, *others)), second)))
    assert re.search(rf"\| {first.promise.column} .*\| budget \d+, mechanism (global|adj), 100 points: then fair", text)


def test_nothing_speaks_against_signing_where_all_columns_are_fair(plan: Plan) -> None:
    fair = with_verdicts(without_warnings(plan), (0.2, 0.1), (0.1, 0.1))
    assert "nothing speaks against signing." in signed(fair)
    assert "nothing speaks against signing but what stands below this." in signed(replace(fair, warnings=("one",)))


def test_what_is_warned_of_a_column_that_is_fair_stands_above_the_signature(plan: Plan) -> None:
    """Such as a bit that tells for certain that a cell is empty, of which no verdict knows."""
    first, second = with_verdicts(without_warnings(plan), (0.2, 0.1), (0.9, 0.1)).columns
    told = replace(first, warnings=("the bit tells all",)), replace(second, warnings=("a guess is right",))
    both = signed(replace(plan, columns=told, warnings=()))
    assert "The bit tells all." in both
    assert "A guess is right." not in both
    text = signed(replace(plan, columns=told[:1], warnings=()))
    assert "nothing speaks against signing but what stands below this." in text


def test_an_example_is_of_releases_that_say_a_value(plan: Plan) -> None:
    spend, visits = plan.columns
    assert (spend.promise.missing_epsilon, visits.promise.missing_epsilon) == (0, 3)
    text = signed(plan)
    assert re.search(r"\| spend .*, nine times of ten \|", text)
    assert re.search(r"\| visits .*, nine times of ten where it does not say empty \|", text)


def test_what_is_signed_uses_no_word_of_the_trade(plan: Plan) -> None:
    assert not re.search("dldp|gamma|kendall|epsilon-", signed(plan), re.IGNORECASE)


def test_all_but_what_is_signed_and_the_what_ifs_is_folded(plan: Plan) -> None:
    page = plan_page(plan)
    assert [one.heading for one in page.sections if not one.is_folded] == ["For signature", "What if"]
    assert {one.heading for one in page.sections if one.is_folded} > {"Column spend", "Column visits", "Guarantee"}
    assert "it is for shop alone" in page.lead
    assert "nothing was drawn, charged or sent" in page.lead


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_records": 100, "n_held_out": 0}, "| at most 100 records x 2 columns = 200 |"),
        ({"n_records": 100, "n_held_out": 10}, "| at most 100 records x 2 columns = 200, about 10 records fewer where"),
        ({"n_held_out": 10}, "| exact answers about held-out records | about 10 records; one bit per split test"),
        ({"n_cells": 15, "n_held_out": 10}, "| about 10 records; the cell of each column, at most 8 bits |"),
        ({"n_cells": 16, "n_held_out": 10}, "| about 10 records; the cell of each column, at most 10 bits |"),
        ({"allow_routed": False}, "exact answers about new records and those released for training | none: refused |"),
        ({"allow_routed": False, "n_held_out": 10}, "| exact answers about held-out records | none: refused |"),
        (
            {"allow_routed": False},
            "| desensitized answers about any record that is asked for | of each, under this plan's noise; what was "
            "not drawn before is charged to the ledger |",
        ),
        ({"alignment": "psi"}, "| ids | 400, blinded, so that only common ones show"),
        (
            {"alignment": "hashed", "keys": ("name with born",)},
            "| keys, in place of ids | name with born of 400 records, as keyed hashes, on which whoever has the shared "
            "secret can try out any other; how many there are shows |",
        ),
        (
            {"alignment": "psi", "keys": ("customer", "mail")},
            "| keys, in place of ids | customer, else mail of 400 records, blinded, so that only common ones show; "
            "how many there are shows; of a record that a later key finds, bank learns that shop has other earlier "
            "ones or none |",
        ),
        ({"share_thresholds": True}, "| thresholds of the model | all |"),
        ({}, "| column names | 2, under numbers |"),
        (
            {"share_thresholds": True},
            "| column names | 2, as they are, with bounds, categories and formats, beside the thresholds |",
        ),
    ],
)
def test_what_else_leaves_has_its_number(plan: Plan, change: dict[str, Any], words: str) -> None:
    assert words in signed(replace(plan, **change))


@pytest.mark.parametrize("n_cells", [16, 255])
def test_no_more_exact_bits_leave_than_were_signed_for(
    sites: Any, outcomes: Callable[..., dict[str, Any]], n_cells: int
) -> None:
    """Numbers of cells are told in whole bits, column by column, and of a category one for each that there is."""
    towns, grades = [f"t{i}" for i in range(12)], ["low", "mid", "high"]
    sites.shop.schema["columns"] |= {
        "town": {"kind": "unordered", "categories": towns},
        "grade": {"kind": "ordered", "categories": grades},
    }
    sites.shop.table["town"], sites.shop.table["grade"] = np.resize(towns, 400), np.resize(grades, 400)
    sites.shop.run["desensitize"] = {"whole_range": 8}
    sites.shop.run |= {"answers": "cells", "cells": n_cells}
    sites.bank.run["answers"] = "cells"
    text = report_of(sites.shop.write(), before=True).text("md")
    assert (said := re.search(r"\| of each, the cell of each column, at most (\d+) bits \|", text)) is not None
    assert train_both(sites, outcomes) == {}
    leave = RunFolder(sites.shop.run_folder).load_router().tests.n_bits
    # Few records leave fewer cells.
    assert leave <= int(said[1]) <= leave + 8


@pytest.mark.parametrize("method", get_args(Method))
def test_every_alignment_has_words_for_what_it_sends_of_ids(plan: Plan, method: str) -> None:
    assert "| ids | 400, " in signed(replace(plan, alignment=method))


def test_names_of_unordered_categories_travel_with_those_of_columns(plan: Plan) -> None:
    first, second = plan.columns
    assert "| column names | 2, as they are |" in signed(replace(plan, opaque_names=False))
    town = replace(second, keep=0.795, categories=("x", "y"), kind="unordered", unit=None, examples=())
    text = signed(replace(plan, opaque_names=False, columns=(first, town)))
    assert "| column names | 2, as they are with those of unordered categories |" in text


def test_a_column_without_values_and_one_of_unordered_categories_have_a_row_too(plan: Plan) -> None:
    first, second = plan.columns
    empty = replace(first, candidates=(replace(first.chosen, verdict=None), *first.candidates[1:]))
    town = replace(second, keep=0.795, categories=("x", "y"), kind="unordered", unit=None, examples=())
    text = signed(replace(plan, columns=(empty, town)))
    assert "| spend | - | no value in the data" in text
    assert "x: the release says so in 80 of 100 cases" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"opaque_names": False}, "Column names travel as they are"),
        ({"share_thresholds": True}, "thresholds go to bank"),
        ({"share_thresholds": False}, "are kept from bank"),
        (
            {"share_thresholds": True},
            "Column names travel as they are, with bounds, categories and formats, beside the thresholds;",
        ),
        ({}, "Column names travel under numbers;"),
        ({"allow_routed": False, "answered_records": "new records"}, "exact routing bits for new records are refused"),
        ({"allow_routed": True, "most_tests": 7}, "at most 7 tests, as was agreed on"),
        ({"allow_routed": False}, "desensitized answers about any record are given, under this noise"),
        ({"redraws": False}, "The first draw of every record and column stays"),
    ],
)
def test_what_is_let_out_is_said_in_words(plan: Plan, change: dict[str, Any], words: str) -> None:
    assert words in text_of(words_section(replace(plan, **change)))

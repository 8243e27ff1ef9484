"""The `sgbdt` section: what is left out is the default of its task, what is given stays."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from pydantic import ValidationError

from opboost.horizontal.sgbdt.defaults import FOR_CLASSES, FOR_NUMBERS
from parties.config.sgbdt_section import SGBDTSection

DEFAULTS = {True: asdict(FOR_CLASSES), False: asdict(FOR_NUMBERS)}


@pytest.mark.parametrize("is_classification", DEFAULTS)
def test_what_is_left_out_is_the_default_of_the_task(is_classification: bool) -> None:
    found = SGBDTSection().completed(is_classification=is_classification)
    assert {name: getattr(found, name) for name in DEFAULTS[is_classification]} == DEFAULTS[is_classification]
    given = SGBDTSection(max_depth=7, learning_rate=0.01).completed(is_classification=is_classification)
    assert (given.max_depth, given.learning_rate) == (7, 0.01)
    assert given.max_grad == DEFAULTS[is_classification]["max_grad"]


@pytest.mark.parametrize(
    ("n_extra", "use_filter", "has_filter"), [(0, None, False), (5, None, True), (5, False, False), (0, True, True)]
)
def test_filters_go_with_further_trees_unless_told_otherwise(
    n_extra: int, use_filter: bool | None, has_filter: bool
) -> None:
    assert SGBDTSection(n_extra_estimators=n_extra, use_filter=use_filter).has_filter is has_filter


def test_a_tree_has_no_more_columns_than_there_are_and_the_printed_recipe_no_regularisation_by_noise() -> None:
    section = SGBDTSection(columns_per_tree=9).completed(is_classification=True)
    assert section.settings(4, is_printed=False).columns_per_tree == 4
    assert section.settings(4, is_printed=False).noise_lambda == section.noise_lambda > 0
    assert (section.settings(4, is_printed=True).noise_lambda, section.settings(4, is_printed=True).floor) == (
        0.0,
        True,
    )


@pytest.mark.parametrize("key", ["n_estimators", "n_extra_estimators", "columns_per_tree"])
def test_counts_that_no_message_holds_are_refused_with_their_names(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        SGBDTSection(**{key: 2**64})

"""The page of a tuning."""

from __future__ import annotations

from dataclasses import replace

from parties.reports.page import to_html, to_markdown
from parties.tuning.result import Tuned
from parties.tuning.tuning_page import tuning_page

TUNED = Tuned(
    metric="auc",
    is_higher_better=True,
    parameters={"max_depth": 3, "learning_rate": 0.125},
    own_parameters={"max_depth": 6},
    scores=(0.7, None, 0.75, 0.72),
    own=0.7,
    best=0.74,
)


def test_the_page_tells_what_was_won_and_that_it_cost_nothing() -> None:
    text = to_markdown(tuning_page(TUNED, "spring"))
    assert "4 trials, 1 of them ended early" in text
    assert "AUC is 0.04 better with the best trial's parameters: train with the parameters of the best trial" in text
    assert "Ledger lines: 0." in text
    assert "| learning_rate | 0.125 |" in text


def test_the_page_says_to_keep_what_no_trial_is_better_than() -> None:
    text = to_markdown(tuning_page(replace(TUNED, best=0.69), "spring"))
    assert "AUC is 0.01 worse with the best trial's parameters: keep the run's own parameters, those of" in text


def test_the_figure_shows_every_finished_trial() -> None:
    html = to_html(tuning_page(TUNED, "spring"))
    assert "AUC of every finished trial" in html

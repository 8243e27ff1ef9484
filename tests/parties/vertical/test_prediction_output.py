"""The table of predictions under a score policy, and what is said of records without one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from parties.config.score_policy import RevealSection
from parties.errors import RecordsRefused
from parties.vertical.prediction_output import count_statuses, note_unanswered, prediction_table
from protocols.messages.prediction import RecordStatus


def test_the_last_bin_holds_a_probability_of_one() -> None:
    ones = prediction_table(pd.Index(["a", "b"], dtype=object), np.array([1.0, 0.0]), np.zeros(2, np.uint8))
    assert RevealSection(bins=10).apply(ones)["prediction"].tolist() == ["0.9 to 1", "0 to 0.1"]


def test_equal_scores_at_the_end_of_the_list_do_not_lengthen_it() -> None:
    equal = prediction_table(pd.Index(list("abcd"), dtype=object), np.full(4, 0.5), np.zeros(4, np.uint8))
    found = RevealSection(top=2).apply(equal)
    assert (found["id"].tolist(), found["rank"].tolist()) == (["a", "b"], [1, 1])


def test_probabilities_of_several_classes_are_made_coarse_and_the_class_stays() -> None:
    probabilities = np.array([[0.61, 0.39], [0.48, 0.52], [np.nan, np.nan]])
    table = prediction_table(pd.Index(list("abc"), dtype=object), probabilities, np.array([0, 0, 1], np.uint8))
    found = RevealSection(bins=2).apply(table)
    assert found["prediction"].fillna(-1).tolist() == [0, 1, -1]
    assert found["probability_0"].tolist() == ["0.5 to 1", "0 to 0.5", None]
    assert RevealSection(round=1).apply(table)["probability_1"].fillna(-1).tolist() == [0.4, 0.5, -1]


def test_nobody_scored_is_an_empty_list() -> None:
    nobody = prediction_table(pd.Index(["a"], dtype=object), np.array([np.nan]), np.array([1], np.uint8))
    assert len(RevealSection(top=3, bins=2).apply(nobody)) == 0
    assert RevealSection(bins=2).apply(nobody)["prediction"].tolist() == [None]


class Log:
    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def step(self, event: str, sentence: str, **facts: object) -> None:
        self.steps.append((event, sentence))


def noted(*status: int) -> list[tuple[str, str]]:
    log = Log()
    note_unanswered(count_statuses(np.array(status, np.uint8)), log, "out.csv")  # type: ignore[arg-type]
    return log.steps


def test_unknown_records_are_noted_and_answered_ones_are_not() -> None:
    assert noted(RecordStatus.ANSWERED, RecordStatus.ANSWERED) == []
    assert noted(RecordStatus.ANSWERED, RecordStatus.UNKNOWN) == [
        ("incomplete", "1 records are unknown to a passive party and have no prediction")
    ]


@pytest.mark.parametrize("status", [one for one in RecordStatus if one > RecordStatus.UNKNOWN])
def test_a_refusal_is_an_error_that_counts_records(status: RecordStatus) -> None:
    with pytest.raises(
        RecordsRefused, match=r"a passive party refused 2 \(.*\) of 3 records; out\.csv holds the others and says which"
    ):
        noted(RecordStatus.ANSWERED, status, status)


def test_where_all_records_are_refused_or_unknown_nothing_is_said_to_hold_others() -> None:
    """It sent whoever asked to look for scores in a file that had none."""
    for others in ([], [RecordStatus.UNKNOWN]):
        with pytest.raises(RecordsRefused, match=r"records; out\.csv says which, and holds no score$"):
            noted(RecordStatus.REFUSED_RATE_LIMIT, *others)

"""Which patterns read the texts of a column, and where the owner must say which one is meant."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from parties.onboarding.date_formats import are_times, fits, times_of


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["2020-01-31", " 2021-12-01 "], {"kind": "date"}),
        (["31.01.2020"], {"kind": "date", "format": "%d.%m.%Y"}),
        (["2020-01-31", "31.01.2020"], {"kind": "date", "format": ["%Y-%m-%d", "%d.%m.%Y"]}),
        (["31/01/2020"], {"kind": "date", "format": "%d/%m/%Y"}),
        (["01/31/2020"], {"kind": "date", "format": "%m/%d/%Y"}),
        (["01/02/2020"], {"kind": "date", "format": "TODO: %d/%m/%Y or %m/%d/%Y"}),
        (["31/01/2020", "01/31/2020"], {}),
        (["31-01-2020"], {"kind": "date", "format": "%d-%m-%Y"}),
        (["01-31-2020"], {"kind": "date", "format": "%m-%d-%Y"}),
        (["01-02-2020"], {"kind": "date", "format": "TODO: %d-%m-%Y or %m-%d-%Y"}),
        (["01-31-2020 10:30"], {"kind": "datetime", "format": "%m-%d-%Y %H:%M"}),
        (["01-02-2020", "2020-01-31"], {}),
        (["2020-01-31T10:30:00", "2020-02-01T00:00:00Z"], {"kind": "datetime"}),
        (["31.01.2020 10:30"], {"kind": "datetime", "format": "%d.%m.%Y %H:%M"}),
        (["2020-01-31", "soon"], {}),
        (["2020-01-31", "now"], {}),
        (["17", "18"], {}),
        (["2020-01-31T10:30:00", "-999"], {}),
    ],
)
def test_a_column_is_of_times_if_patterns_that_cannot_be_mistaken_read_all_of_it(
    texts: list[str], found: dict[str, Any]
) -> None:
    assert times_of(pd.Series(texts)) == found


def test_each_text_is_a_time_or_none() -> None:
    texts = pd.Series(["2020-01-31", "31.01.2020 10:30", "32.01.2020", "soon", ""])
    assert are_times(texts).tolist() == [True, True, False, False, False]
    assert fits(texts, "%Y-%m-%d").tolist() == [True, False, False, False, False]

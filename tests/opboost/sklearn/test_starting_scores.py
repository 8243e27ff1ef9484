"""Base margins that are given with rows: their shapes and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.sklearn.starting_scores import margins_of, named_margins
from opboost.trees.losses import Logistic, Softmax


def test_margins_have_a_column_for_each_output() -> None:
    assert margins_of(None, 4, Softmax(3)).shape == (4, 0)
    assert margins_of([1, 2], 2, Logistic()).tolist() == [[1.0], [2.0]]
    given = margins_of(np.arange(6).reshape(2, 3), 2, Softmax(3))
    assert {name: column.tolist() for name, column in named_margins(given).items()} == {
        "base_margin[0]": [0, 3],
        "base_margin[1]": [1, 4],
        "base_margin[2]": [2, 5],
    }


@pytest.mark.parametrize("given", [[1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 2.0], [3.0, 4.0]]])
def test_margins_that_do_not_fit_are_refused(given: Any) -> None:
    with pytest.raises(DataError, match=r"base_margin must be finite, of shape \(2, 1\)"):
        margins_of(given, 2, Logistic())

"""scikit-learn's checks of estimators, whose names take half of the time that pytest needs to find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sklearn.utils import estimator_checks


def parametrize_with_checks(estimators: Sequence[Any], **settings: Any) -> pytest.MarkDecorator:
    """scikit-learn's decorator of this name, but each estimator is put into words once, and not for each check."""
    mark = estimator_checks.parametrize_with_checks(list(estimators), **settings)
    names: dict[int, str | None] = {}

    def name_of(item: Any) -> str | None:
        if id(item) not in names:
            names[id(item)] = mark.kwargs["ids"](item)
        return names[id(item)]

    return pytest.mark.parametrize(*mark.args, ids=name_of)

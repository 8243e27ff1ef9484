"""The `serve` section: answers are counted over time exactly where a limit over time is set."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from parties.config.serve_section import ServeSection


@pytest.mark.parametrize(
    ("given", "has_limits"),
    [({}, False), ({"batch_rows": 5}, False), ({"records_per_minute": 1}, True), ({"routed_bits_per_day": 9}, True)],
)
def test_a_limit_over_time_takes_a_file(given: dict[str, Any], has_limits: bool) -> None:
    assert ServeSection(**given).has_limits is has_limits


@pytest.mark.parametrize("key", ["batch_rows", "records_per_minute", "routed_bits_per_day"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_limit_of_nothing_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        ServeSection(**{key: value})

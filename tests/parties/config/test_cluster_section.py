"""The `dask` section: a running scheduler or a number of processes here, never both."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from parties.config.cluster_section import DaskSection


def test_without_a_scheduler_two_processes_are_started_here() -> None:
    assert (DaskSection().scheduler, DaskSection().workers) == (None, 2)
    assert DaskSection(scheduler="tls://host:8786").scheduler == "tls://host:8786"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scheduler": "tcp://host:8786", "workers": 2}, "give either the address of a scheduler"),
        ({"scheduler": "ipc:///tmp/x"}, "must be tcp://host:port or tls://host:port"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"workers": 1025}, "less than or equal to 1024"),
        ({"partition_rows": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        DaskSection(**given)

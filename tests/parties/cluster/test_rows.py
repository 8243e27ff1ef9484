"""A worker's partitions on Dask: a lost cluster is one sentence, a state never changes, errors keep their words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from parties.cluster import rows
from parties.cluster.rows import PartsOnDask
from parties.errors import TableError, WorkersLost


def parts(error: Exception | None = None) -> PartsOnDask:
    class Client:
        def gather(self, futures: list[Any]) -> list[Any]:
            if error is not None:
                raise error
            return futures

    made = object.__new__(PartsOnDask)
    made._client = Client()  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("error", [TimeoutError("salary 81726354"), KeyError("x"), OSError("socket")])
def test_whatever_dask_says_of_lost_workers_is_one_sentence_without_its_words(error: Exception) -> None:
    with pytest.raises(WorkersLost, match=rf"did not finish a task: {type(error).__name__}\. Nothing was sent$"):
        parts(error)._had([])


def test_a_client_that_was_closed_between_two_questions_is_a_lost_cluster() -> None:
    """Dask refuses the next task, before anything is waited for."""

    class Client:
        status = "closed"

        def submit(self, *call: Any, **how: Any) -> Any:
            raise RuntimeError("client is closed: salary 81726354")

    made = parts()
    made._client, made._states, made._digests = Client(), [SimpleNamespace()], [""]  # type: ignore[assignment, list-item]
    with pytest.raises(WorkersLost, match=r"gave it up: RuntimeError$"):
        made.ask([])


@pytest.mark.parametrize("error", [DataError("mine"), TableError("mine")])
def test_an_error_of_the_data_keeps_its_words(error: Exception) -> None:
    with pytest.raises(type(error), match="mine"):
        parts(error)._had([])
    assert parts()._had([1, 2]) == [1, 2]


def test_a_task_that_runs_again_begins_with_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rows, "HeldPart", lambda file, records, digest, sums: SimpleNamespace(records=records, sums=sums)
    )
    state: Any = SimpleNamespace(
        file="f", digest="d", sums=np.zeros(2), records=SimpleNamespace(copied=lambda: np.arange(3))
    )

    def double(part: Any) -> None:
        part.records *= 2

    found = [rows._after(state, [double, double]).records.tolist() for _ in range(2)]
    assert found == [[0, 4, 8]] * 2

"""Messages of prediction: of several parties' words the graver counts, and a status of another version is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.transport.codec import decode, encode


def test_an_answer_is_the_least_grave_status_and_ignorance_the_next() -> None:
    assert list(RecordStatus) == sorted(RecordStatus)
    assert list(RecordStatus)[:2] == [RecordStatus.ANSWERED, RecordStatus.UNKNOWN]
    assert [status.value for status in RecordStatus] == list(range(len(RecordStatus)))


@pytest.mark.parametrize("status", range(8))
def test_a_status_that_this_version_does_not_know_is_refused(status: int) -> None:
    given = {"status": np.array([0, status], np.uint8), "bits": np.zeros((2, 1), np.uint8)}
    if status in list(RecordStatus):
        found = decode([bytes(frame) for frame in encode(Answers(**given))])
        assert isinstance(found, Answers)
        assert found.status.tolist() == [0, status]
        return
    with pytest.raises(ValidationError, match="a status that this version does not know"):
        Answers(**given)


def test_ids_come_as_they_were_asked_for() -> None:
    ask = Ask(ids=("b", "a", "b"), desensitized=True)
    assert decode([bytes(frame) for frame in encode(ask)]) == ask

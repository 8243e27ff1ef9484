"""The active party in prediction: answers that were not asked for are refused, and a refused record has no score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree
from parties.errors import Disagreement
from parties.runs.joint_model import JointModel
from parties.vertical.prediction_client import FinishedBatches, Session, asking_hello, predict_locally, session
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Done, Hello, Role, Task
from protocols.transport.channel import expect
from protocols.transport.memory import memory_pair
from tests.support.outcomes import outcomes_of

TREE = Tree(
    columns=np.array([0, -1, -1], np.int32),
    thresholds=np.array([0.5, 0, 0]),
    missing_left=np.zeros(3, np.bool_),
    lefts=np.array([1, 0, 0], np.int32),
    rights=np.array([2, 0, 0], np.int32),
    values=np.array([0, 1.0, -1.0]),
    gains=np.zeros(3),
    covers=np.zeros(3),
)
MODEL = JointModel(ensemble=Ensemble((TREE,), np.zeros(1), SquaredError(), (Feature("c0", "shop", 3, True),)))
IDS = [f"r{i}" for i in range(5)]


def answered(status: list[int], bits: list[int]) -> Answers:
    return Answers(status=np.array(status, np.uint8), bits=np.array(bits, np.uint8).reshape(len(bits), -1))


def predicted(*answers: Answers, batch_rows: int = 9) -> Any:
    here, there = memory_pair("bank", "shop")
    for one in answers:
        there.send(one)
    return Session(MODEL, [here], batch_rows=batch_rows).predict(IDS, {}, desensitized=True)


def test_a_record_without_an_answer_has_no_score() -> None:
    refused = RecordStatus.REFUSED_RATE_LIMIT
    scores, status = predicted(answered([0, 0, RecordStatus.UNKNOWN, 0, refused], [0, 128, 0, 0, 128]))
    assert np.isnan(scores).tolist() == [False, False, True, False, True]
    assert {abs(score) for score in scores[[0, 1, 3]]} == {1.0}
    assert scores[0] == scores[3] == -scores[1]
    assert status.tolist() == [0, 0, RecordStatus.UNKNOWN, 0, refused]


def test_batches_are_asked_for_one_after_the_other() -> None:
    whole = predicted(answered([0] * 5, [0, 128, 0, 128, 128]))[0]
    cut = predicted(answered([0] * 2, [0, 128]), answered([0] * 2, [0, 128]), answered([0], [128]), batch_rows=2)[0]
    np.testing.assert_array_equal(whole, cut)


@pytest.mark.parametrize("wrong", [answered([0] * 4, [0] * 4), answered([0] * 5, [0] * 10)])
def test_answers_to_another_request_are_refused(wrong: Answers) -> None:
    with pytest.raises(UnexpectedMessage, match="5 records with 1 bits each were asked for"):
        predicted(wrong)


@pytest.mark.parametrize("desensitized", [False, True])
@pytest.mark.parametrize("status", list(RecordStatus))
def test_a_refusal_of_the_mode_that_was_not_asked_for_is_refused(status: RecordStatus, desensitized: bool) -> None:
    """Otherwise a false `refused_budget` has exact answers of other parties asked for again."""
    of_other_mode = {
        False: {RecordStatus.REFUSED_BUDGET},
        True: {RecordStatus.REFUSED_ROUTED, RecordStatus.REFUSED_TRAINING},
    }
    here, there = memory_pair("bank", "shop")
    there.send(answered([0, 0, status, 0, 0], [0] * 5))
    asking = Session(MODEL, [here], batch_rows=9)
    if status in of_other_mode[desensitized]:
        with pytest.raises(UnexpectedMessage, match=f"shop answered '{status.name}', which no request"):
            asking.predict(IDS, {}, desensitized=desensitized)
    else:
        assert asking.predict(IDS, {}, desensitized=desensitized)[1][2] == status


def test_a_peer_that_says_what_nobody_asked_for_is_noticed_while_nothing_is_asked() -> None:
    """An unread message would hide that the peer has left."""
    here, there = memory_pair("bank", "shop")
    idle = Session(MODEL, [here], batch_rows=9)
    idle.check()
    there.send(Done())
    there.close()
    with pytest.raises(UnexpectedMessage, match="shop sent a message 'done' that nobody asked for"):
        idle.check()


@pytest.mark.parametrize(("takes", "n_requests"), [(None, 1), (2, 3)])
def test_a_session_asks_for_as_many_as_the_peer_takes_and_says_when_it_is_over(
    takes: int | None, n_requests: int
) -> None:
    here, there = memory_pair("bank", "shop")
    asked: list[int] = []

    def answer() -> None:
        there.send(Hello(role=Role.PASSIVE, party="shop", run_id="r", task=Task.PREDICT, n_rows=0, max_rows=takes))
        expect(there, Hello)
        while isinstance(message := there.receive(), Ask):
            asked.append(len(message.ids))
            there.send(answered([0] * len(message.ids), [0] * len(message.ids)))
        assert message == Done()

    def ask() -> Any:
        with session(MODEL, [here], party="bank", run_id="r") as asking:
            return asking.predict(IDS, {}, desensitized=False)

    found = outcomes_of({"bank": ask, "shop": answer})
    assert found["shop"] is None, found
    assert (len(asked), sum(asked)) == (n_requests, 5)


def test_scores_are_told_to_be_as_coarse_as_they_are() -> None:
    assert asking_hello("bank", "r", "rounded").plan.reveal == "rounded"


def test_alone_a_score_needs_every_partys_thresholds() -> None:
    with pytest.raises(Disagreement, match="shop keeps its thresholds, so A cannot score alone"):
        predict_locally(MODEL, {}, pd.DataFrame())


def test_a_peer_that_comes_back_for_fewer_records_is_asked_for_no_more_of_a_batch_under_way() -> None:
    """The other one has answered about all of it, and is not asked again."""
    features = MODEL.ensemble.features
    both = JointModel(ensemble=replace(MODEL.ensemble, features=(*features, replace(features[0], owner="mill"))))
    finished = FinishedBatches(answered={"shop": answered([0] * 5, [0, 128, 0, 128, 128])})
    (to_shop, _), (to_mill, mill) = memory_pair("bank", "shop"), memory_pair("bank", "mill")
    for n_rows in (2, 2, 1):
        mill.send(answered([0] * n_rows, [0] * n_rows))
    asking = Session(both, [to_shop, to_mill], batch_rows=2)
    scores, _ = asking.predict(IDS, {}, desensitized=True, finished=finished)
    assert [expect(mill, Ask).ids for _ in range(3)] == [("r0", "r1"), ("r2", "r3"), ("r4",)]
    assert scores.tolist() == predicted(answered([0] * 5, [0, 128, 0, 128, 128]))[0].tolist()

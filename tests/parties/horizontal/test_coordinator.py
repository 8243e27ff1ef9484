"""A coordinator and workers on small tables, over memory and over CURVE: the same model, and what goes wrong."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.rng import BitSource, seeded
from opboost.trees.holder import SummedHolders
from parties.errors import Disagreement
from parties.horizontal.answered_questions import Answered
from protocols.errors import PeerAborted, PeerLost, SumRefused, TooFewWorkers, UnexpectedMessage
from protocols.messages.horizontal import Join, Masked, Welcome
from protocols.messages.message import Message
from protocols.transport.channel import Channel
from tests.support.cancelling import cancelling
from tests.support.workers import (
    N_TREES,
    TERMS,
    Dies,
    Meddling,
    Run,
    die,
    job,
    leaves,
    meddling,
    recipe,
    rows,
    shape_bits,
)


def simulated(of: SGBDTAmongOwners, *, whole: bool = False) -> list[list[float]]:
    """The trees' leaves with all rows in one holder, or in three of this process."""
    if whole:
        X, y = (np.concatenate(parts) for parts in zip(*(rows(place) for place in range(3)), strict=True))
        holder = of.rows(X, y, rng=seeded(0))
    else:
        holders = [of.rows(*rows(place), rng=seeded(100 + place).fork("rows")) for place in range(3)]
        holder = SummedHolders(holders)
    return leaves(of.train(holder, shape_bits=shape_bits(), rng=seeded(8)))


@pytest.fixture(params=["memory", "curve"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(tmp_path, request.param)


@pytest.fixture
def curve(tmp_path: Path) -> Run:
    return Run(tmp_path, "curve")


@pytest.fixture
def memory(tmp_path: Path) -> Run:
    return Run(tmp_path, "memory")


@pytest.mark.parametrize("n_honest", [0, 2])
def test_workers_train_the_model_of_a_simulation_to_the_last_bit(run: Run, n_honest: int) -> None:
    of = recipe(n_honest=n_honest)
    run.start_hub(of)
    for place in range(3):
        run.start_worker(job(of, place))
    found = run.join()
    assert leaves(found["hub"].ensemble) == simulated(of)
    if not n_honest:
        assert leaves(found["hub"].ensemble) == simulated(of, whole=True)
    for place in range(3):
        assert [tree.values.tolist() for tree in found[f"w{place}"]] == leaves(found["hub"].ensemble)
    assert not found["hub"].guarantee.certified  # of seeded bits


def test_the_printed_mean_of_ratios_comes_out_as_simulated(memory: Run) -> None:
    of = recipe(is_mean_of_values=True)
    memory.start_hub(of)
    for place in range(3):
        memory.start_worker(job(of, place))
    assert leaves(memory.join()["hub"].ensemble) == simulated(of)


def test_a_worker_that_dies_at_any_step_of_a_round_is_left_out_and_the_others_go_on(run: Run) -> None:
    of = recipe()
    run.start_hub(of)
    for place in range(2):
        run.start_worker(job(of, place))
    run.start_worker(job(of, 2), through=meddling("masked", die, nth=1))
    found = run.join()
    assert isinstance(found["w2"], Dies)
    assert len(found["hub"].ensemble.trees) == N_TREES
    assert leaves(found["hub"].ensemble)[0] == simulated(of)[0]
    assert leaves(found["hub"].ensemble)[1] != simulated(of)[1]
    assert [event for event, _ in run.events] == ["dropped out"]


@pytest.mark.parametrize("kind", ["parcel", "confirmed", "shares"])
def test_it_may_die_before_its_vector_or_after(memory: Run, kind: str) -> None:
    of = recipe()
    memory.start_hub(of)
    for place in range(3):
        memory.start_worker(job(of, place), **({"through": meddling(kind, die)} if place == 2 else {}))
    found = memory.join()
    assert len(found["hub"].ensemble.trees) == N_TREES
    same_first = leaves(found["hub"].ensemble)[0] == simulated(of)[0]
    assert same_first == (kind != "parcel")


def test_below_the_threshold_the_run_ends_and_says_so(run: Run) -> None:
    of = recipe()
    run.start_hub(of)
    run.start_worker(job(of, 0))
    for place in (1, 2):
        run.start_worker(job(of, place), through=meddling("masked", die, nth=1))
    found = run.join()
    assert isinstance(found["hub"], SumRefused)
    assert "1 of" in str(found["hub"])
    assert isinstance(found["w0"], (PeerAborted, PeerLost))


def test_fewer_workers_than_every_sum_needs_are_not_asked_for_anything(memory: Run) -> None:
    of = recipe()
    memory.start_hub(of, wait_s=0.5)
    memory.start_worker(job(of, 0))
    found = memory.join("hub", "w0")
    assert "1 of 3 workers came where every sum needs 2" in str(found["hub"])
    assert isinstance(found["w0"], PeerAborted)


def test_a_run_begins_without_a_worker_that_is_late_and_takes_it_in_when_it_comes(curve: Run) -> None:
    of = recipe(n_trees=40)
    curve.start_hub(of, wait_s=1.0)
    slowly = slow("masked", 0.05)
    for place in range(2):
        curve.start_worker(job(of, place, **curve.lasting(place)), through=slowly)
    time.sleep(1.5)
    curve.start_worker(job(of, 2, **curve.lasting(2)))
    found = curve.join()
    assert ("returned", "w2 takes part again") in curve.events
    assert len(found["w2"]) == len(found["hub"].ensemble.trees) == 40


def test_a_late_worker_that_knows_nobody_has_nobody_to_vouch_for_the_public_bits(curve: Run) -> None:
    of = recipe(n_trees=40)
    curve.start_hub(of, wait_s=1.0)
    for place in range(2):
        curve.start_worker(job(of, place), through=slow("masked", 0.05))
    time.sleep(1.5)
    curve.start_worker(job(of, 2))
    found = curve.join()
    assert isinstance(found["w2"], Disagreement)
    assert len(found["hub"].ensemble.trees) == 40


def slow(kind: str, seconds: float) -> Callable[[Channel], Any]:
    def wait(message: Message) -> Message:
        time.sleep(seconds)
        return message

    return lambda channel: Meddling(channel, kind, wait, nth=0) if seconds > 0.5 else Always(channel, kind, wait)


class Always(Meddling):
    def __init__(self, channel: Channel, kind: str, act: Callable[[Message], Message | None]) -> None:
        super().__init__(channel, kind, act)

    def send(self, message: Message) -> None:
        self._left = 0
        super().send(message)


def test_a_slow_worker_is_left_out_of_a_round_its_late_vector_is_dropped_and_it_comes_back(run: Run) -> None:
    of = recipe(n_trees=30)
    run.start_hub(of, patience_s=0.4)
    for place in range(2):
        run.start_worker(job(of, place), through=slow("masked", 0.05))
    run.start_worker(job(of, 2), through=slow("masked", 1.0))
    found = run.join()
    events = [event for event, _ in run.events]
    assert events == ["dropped out", "returned"]
    assert "w2 did not answer within 0.4 s" in run.events[0][1]
    assert len(found["w2"]) == len(found["hub"].ensemble.trees) == 30


@pytest.mark.parametrize("kind", ["masked", "confirmed", "shares"])
def test_a_round_that_too_few_slow_workers_are_left_in_begins_anew_when_they_are_back(memory: Run, kind: str) -> None:
    of = recipe()
    memory.start_hub(of, patience_s=0.4)

    memory.start_worker(job(of, 0))
    for place in (1, 2):
        memory.start_worker(job(of, place), through=meddling(kind, memory.late(1.0)))
    found = memory.join()
    assert len(found["hub"].ensemble.trees) == N_TREES
    assert {"dropped out", "returned"} == {event for event, _ in memory.events}


@pytest.mark.parametrize("is_heard_again", [False, True])
def test_a_worker_that_never_sends_shares_in_time_ends_a_run_that_needs_it(memory: Run, is_heard_again: bool) -> None:
    of = recipe()
    memory.start_hub(of, patience_s=0.2, threshold=3)

    def be_late(message: Message) -> Message | None:
        memory.group.wait_s = 3.0
        time.sleep(0.5)
        return message if is_heard_again else None

    for place in range(3):
        through = (lambda channel: Always(channel, "shares", be_late)) if place == 2 else (lambda channel: channel)
        memory.start_worker(job(of, place, threshold=3), through=through)
    found = memory.join()
    assert isinstance(found["hub"], TooFewWorkers)
    assert "w2 is lacking where a sum may have been opened over w0, w1, w2 before" in str(found["hub"])
    assert ("it came back 8 times more than there were sums" in str(found["w2"])) == is_heard_again


def test_a_worker_that_was_killed_comes_back_as_a_new_process_and_answers_for_no_tree_twice(curve: Run) -> None:
    of = recipe(n_trees=30)
    answered: list[Answered] = []
    curve.start_hub(of)
    for place in range(2):
        curve.start_worker(job(of, place), through=slow("masked", 0.05))
    noted: list[bytes] = []
    dying = job(of, 2, note_answer=answered.append, note_drawing=noted.append)
    curve.start_worker(dying, through=meddling("masked", die, nth=3))
    curve.join("w2")
    assert [each.n_trees for each in answered] == [1, 1, 2, 2, 3, 3, 4]
    again: list[Answered] = []
    curve.start_worker(job(of, 2, answered=answered[-1], note_answer=again.append, drawing=noted[0]))
    found = curve.join()
    numbers = [each.n_trees for each in again]
    assert numbers[0] >= 4
    assert numbers == sorted(numbers)
    assert len(found["w2"]) == 30
    assert [event for event, _ in curve.events] == ["dropped out", "returned"]


def test_a_new_process_does_not_answer_for_an_old_tree_even_if_it_is_asked(memory: Run) -> None:
    """A coordinator that lost its run folder asks from the first tree on, under other public bits."""
    of = recipe()
    memory.start_hub(of, wait_s=1.0)
    for place in range(3):
        memory.start_worker(job(of, place, answered=Answered(n_trees=2)))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    assert "this worker has answered for a later tree; nothing was sent" in str(found["w0"])


@pytest.mark.parametrize(
    "vector",
    [np.zeros(3, "<u8"), np.zeros(8, "<u4"), np.zeros((8, 1), "<u8")],
    ids=["wrong length", "smaller field", "two dimensions"],
)
def test_a_malformed_vector_costs_its_sender_the_run_and_nobody_else(run: Run, vector: np.ndarray) -> None:
    of = recipe()
    run.start_hub(of)

    def garble(message: Message) -> Message:
        return message.model_copy(update={"vector": vector})

    for place in range(3):
        run.start_worker(job(of, place), **({"through": meddling("masked", garble)} if place == 1 else {}))
    found = run.join()
    assert len(found["hub"].ensemble.trees) == N_TREES
    assert isinstance(found["w1"], (PeerAborted, PeerLost))
    assert [event for event, _ in run.events] == ["dropped out"]


@pytest.mark.parametrize("kind", ["parcel", "masked"])
def test_a_malformed_parcel_costs_its_sender_the_run_and_nobody_else(memory: Run, kind: str) -> None:
    of = recipe()
    memory.start_hub(of)

    def shorten(message: Message) -> Message:
        return message.model_copy(update={"sealed": message.sealed[:, :-1]})

    for place in range(3):
        memory.start_worker(job(of, place), **({"through": meddling(kind, shorten)} if place == 1 else {}))
    found = memory.join()
    assert len(found["hub"].ensemble.trees) == N_TREES
    assert "its parcel is malformed" in str(found["w1"])


def wrong_shares(*dealers: int) -> Callable[[Message], Message]:
    def spoil(message: Message) -> Message:
        rows = message.rows.copy()
        rows[list(dealers), 0] ^= 1
        return message.model_copy(update={"rows": rows})

    return spoil


def test_one_wrong_share_ends_no_run_and_the_two_who_may_have_made_it_are_named(run: Run) -> None:
    of = recipe()
    run.start_hub(of)
    run.start_worker(job(of, 0))
    run.start_worker(job(of, 1), through=meddling("shares", wrong_shares(0)))
    # Without this one's shares two would be enough, if both were right.
    run.start_worker(job(of, 2), through=slow("shares", 0.2))
    found = run.join()
    assert leaves(found["hub"].ensemble) == simulated(of)
    (event,) = [sentence for name, sentence in run.events if name == "wrong share"]
    assert event == "w1's share of w0's secret is wrong or lacking: one of the two does not keep to the protocol"
    assert [name for name, _ in run.events] == ["wrong share"]


def test_a_worker_whose_shares_are_all_wrong_is_named_and_the_others_go_on(memory: Run) -> None:
    of = recipe()
    memory.start_hub(of)
    memory.start_worker(job(of, 0))
    memory.start_worker(job(of, 1), through=meddling("shares", wrong_shares(0, 1, 2)))
    memory.start_worker(job(of, 2), through=slow("shares", 0.2))
    found = memory.join()
    assert leaves(found["hub"].ensemble)[0] == simulated(of)[0]
    assert len(found["hub"].ensemble.trees) == N_TREES
    assert "shares of w0, w1, w2 are wrong" in str(found["w1"])
    assert [name for name, _ in memory.events] == ["dropped out"]
    assert "w1 does not keep to the protocol" in memory.events[0][1]


@pytest.mark.parametrize("reader", [0, 1])
def test_a_wrong_confirmation_ends_no_run_and_is_named(memory: Run, reader: int) -> None:
    """To another worker either of the two may be at fault; to oneself nobody else."""
    of = recipe()
    memory.start_hub(of)
    memory.start_worker(job(of, 0))
    memory.start_worker(job(of, 1), through=meddling("confirmed", wrong_shares(reader)))
    memory.start_worker(job(of, 2), through=slow("shares", 0.2))
    found = memory.join()
    assert leaves(found["hub"].ensemble)[0] == simulated(of)[0]
    assert len(found["hub"].ensemble.trees) == N_TREES
    ((event, sentence),) = memory.events
    if reader == 0:
        assert event == "wrong confirmation"
        assert sentence.startswith("w1's confirmation to w0 is wrong, as w0 says: one of the two does not")
    else:
        assert event == "dropped out"
        assert "its confirmations to w1 are wrong" in str(found["w1"])


def test_too_many_wrong_shares_end_the_run_with_the_name_of_whose_mask_they_are(memory: Run) -> None:
    of = recipe()
    memory.start_hub(of)
    memory.start_worker(job(of, 0))
    for place in (1, 2):
        memory.start_worker(job(of, place), through=meddling("shares", wrong_shares(0)))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    words = "1 right shares of w0's secret came where 2 must: those of w1, w2 are not the ones that it sent digests of"
    assert words in str(found["hub"])


@pytest.mark.parametrize("carrier", ["memory", "curve"])
def test_two_whose_errors_cancel_in_some_shares_are_expelled_and_no_honest_worker_is(
    tmp_path: Path, carrier: str
) -> None:
    of, terms = recipe(), {**TERMS, "threshold": 3}
    run = Run(tmp_path, carrier)
    run.start_hub(of, 5, threshold=3, terms=terms)

    def add(error: np.ndarray) -> Callable[[Message], Message]:
        return lambda message: message.model_copy(update={"rows": message.rows ^ error})

    errors = cancelling((0, 1), (0, 1, 3))
    for place in range(5):
        through = meddling("shares", add(errors[place])) if place in errors else slow("shares", 0.2)
        run.start_worker(job(of, place, n_workers=5, threshold=3, terms=terms), through=through)
    found = run.join()
    assert len(found["hub"].ensemble.trees) == N_TREES
    for place in range(5):
        if place in errors:
            assert "its shares of w0, w1, w2, w3, w4 are wrong" in str(found[f"w{place}"])
        else:
            assert len(found[f"w{place}"]) == N_TREES
    assert [event for event, _ in run.events] == ["dropped out"] * 2


def test_a_worker_that_sends_wrong_digests_is_expelled_and_costs_no_sum(memory: Run) -> None:
    of = recipe()
    memory.start_hub(of)

    def spoil(message: Message) -> Message:
        return message.model_copy(update={"digests": message.digests ^ 1})

    for place in range(2):
        memory.start_worker(job(of, place))
    memory.start_worker(job(of, 2), through=lambda channel: meddling("parcel", spoil)(slow("shares", 0.3)(channel)))
    found = memory.join()
    assert leaves(found["hub"].ensemble)[0] == simulated(of)[0]
    assert len(found["hub"].ensemble.trees) == N_TREES
    assert "it sent digests that the shares of w0, w1 contradict, of which some must be right" in str(found["w2"])
    assert [event for event, _ in memory.events] == ["dropped out"]


def test_a_worker_that_drops_out_with_shares_that_nobody_can_open_is_done_without(memory: Run) -> None:
    """The masks that the others have with it stay in the sum, which begins anew over them alone."""
    of = recipe()
    memory.start_hub(of, patience_s=1.5)

    def spoil(message: Message) -> Message:
        return message.model_copy(update={"sealed": message.sealed ^ 1})

    def keep_back(channel: Channel) -> Any:
        return meddling("masked", lambda message: None)(channel)

    for place in range(2):
        memory.start_worker(job(of, place))
    memory.start_worker(job(of, 2), through=lambda channel: meddling("parcel", spoil)(keep_back(channel)))
    found = memory.join()
    assert len(found["hub"].ensemble.trees) == len(found["w0"]) == len(found["w1"]) == N_TREES
    assert "it sent digests that the shares of w0, w1 contradict" in str(found["w2"])
    assert [event for event, _ in memory.events] == ["dropped out"]


def test_other_terms_are_told_on_both_sides_and_nothing_is_asked(run: Run) -> None:
    of = recipe()
    run.start_hub(of)
    for place in range(3):
        terms = {**TERMS, "epsilon": 0.5} if place == 1 else TERMS
        run.start_worker(job(of, place, terms=terms))
    found = run.join("hub", "w1")
    assert isinstance(found["hub"], Disagreement)
    assert "epsilon: w1 has 0.5, this party 2.0" in str(found["hub"])
    assert isinstance(found["w1"], (Disagreement, PeerAborted))
    assert "epsilon" in str(found["w1"])


class Mirror:
    """A coordinator's end of a channel that shows a worker the terms which the worker has itself."""

    def __init__(self, channel: Channel, terms: dict[str, Any]) -> None:
        self._channel, self._terms = channel, terms

    def send(self, message: Message) -> None:
        self._channel.send(message.model_copy(update={"terms": TERMS}) if isinstance(message, Join) else message)

    def receive(self) -> Message:
        message = self._channel.receive()
        return message.model_copy(update={"terms": self._terms}) if isinstance(message, Welcome) else message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def test_workers_of_other_terms_have_no_sum_whatever_terms_a_coordinator_shows_each_of_them(curve: Run) -> None:
    """At a larger epsilon the others would add less noise than this worker's guarantee is for."""
    curve.start_hub(recipe(n_honest=2))
    for place in range(3):
        of, terms = recipe(n_honest=2, epsilon=2.0 if place else 0.1), {**TERMS, "epsilon": 2.0 if place else 0.1}
        curve.start_worker(job(of, place, terms=terms, **curve.lasting(place)), through=partial(Mirror, terms=terms))
    found = curve.join()
    assert isinstance(found["hub"], (SumRefused, TooFewWorkers))
    assert not [name for name, result in found.items() if not isinstance(result, BaseException)]


def test_a_worker_that_reveals_other_bytes_than_it_was_committed_to_ends_the_run(memory: Run) -> None:
    of = recipe()
    memory.start_hub(of)

    def other(message: Message) -> Message:
        return message.model_copy(update={"random": bytes(32)})

    for place in range(3):
        memory.start_worker(job(of, place), **({"through": meddling("reveal", other)} if place == 1 else {}))
    assert "the random bytes of w1 are not those it was committed to" in str(memory.join()["hub"])


def test_a_coordinator_that_draws_splits_of_its_own_is_stopped_by_the_workers(memory: Run) -> None:
    of = recipe()

    class Chooser:
        def train(self, holder: Any, *, shape_bits: BitSource, rng: BitSource) -> Any:
            return of.train(holder, shape_bits=seeded(1), rng=rng)

        guarantee = of.guarantee

    memory.start_hub(Chooser())
    for place in range(3):
        memory.start_worker(job(of, place))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    assert "not the one that the public random bits give" in str(found["w0"])


def test_what_the_coordinator_receives_is_masked_and_never_a_number_of_rows(memory: Run) -> None:
    of = recipe()
    seen: list[Masked] = []

    def keep(message: Message) -> Message:
        seen.append(message)
        return message

    memory.start_hub(of)
    for place in range(3):
        memory.start_worker(job(of, place), through=lambda channel: Always(channel, "masked", keep))
    memory.join()
    assert len(seen) == 3 * N_TREES
    numbers = np.concatenate([message.vector for message in seen])
    # Sums of at most 240 records stay below 2^40; of 96 uniform words none does, but with probability 96 / 2^23.
    assert (numbers.view(np.int64).astype(float) ** 2 > 2.0**80).all()
    digests = {hashlib.sha256(message.vector.tobytes()).hexdigest() for message in seen}
    assert len(digests) == len(seen)


def test_a_question_that_the_account_does_not_have_is_refused_by_the_worker(memory: Run) -> None:
    of = recipe()

    class Curious:
        def train(self, holder: Any, *, shape_bits: BitSource, rng: BitSource) -> Any:
            holder.start_tree(0)
            holder.write_histograms(np.array([0], np.int32), np.zeros((1, 2, of.task.grid.axes.n_bins), np.int64))

        guarantee = of.guarantee

    memory.start_hub(Curious())
    for place in range(3):
        memory.start_worker(job(of, place))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    assert "'want histograms' of 1 nodes at once is no question of this recipe" in str(found["w0"])


def test_a_sum_of_nodes_that_are_not_there_is_refused_by_the_worker(memory: Run) -> None:
    of = recipe()

    class Lost:
        def train(self, holder: Any, *, shape_bits: BitSource, rng: BitSource) -> Any:
            holder.start_tree(0)
            holder.totals(np.array([5], np.int32))

        guarantee = of.guarantee

    memory.start_hub(Lost())
    for place in range(3):
        memory.start_worker(job(of, place))
    found = memory.join()
    assert isinstance(found["w0"], UnexpectedMessage)
    assert "nodes that the tree does not have as leaves" in str(found["w0"])

"""A coordinator and workers on small tables, over memory and over CURVE: the same model, and what goes wrong."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.noise.distributed_noise import shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import leaf_clipping, leaf_noise
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.horizontal.sgbdt.training import Shape
from opboost.rng import BitSource, seeded
from opboost.trees.holder import SummedHolders
from parties.errors import Disagreement
from parties.horizontal.coordinator import SharedModel, coordinate
from parties.horizontal.public_randomness import commitment, public_bits
from parties.horizontal.verified_rows import Answered
from parties.horizontal.worker import WorkerJob, work
from parties.horizontal.worker_group import WorkerGroup
from protocols.errors import PeerAborted, PeerLost, SumRefused, UnexpectedMessage
from protocols.messages.horizontal import Masked
from protocols.messages.vertical import Message
from protocols.transport.channel import Channel, Timing
from protocols.transport.keys import generate, read_secret
from protocols.transport.memory import memory_pair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

N_ROWS, N_TREES = 240, 4
TERMS = {"recipe": "sgbdt", "epsilon": 2.0, "threshold": 2}
CLIPPING = leaf_clipping(0.5, 2.0, is_classification=True)
TIMING = Timing(timeout_s=3, wait_s=10)


def recipe(*, n_honest: int = 0, n_trees: int = N_TREES, **changes: Any) -> SGBDTAmongOwners:
    budget: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "n_trees": n_trees}
    noise = (
        shared_leaf_noise(CLIPPING, n_honest=n_honest, **budget)
        if n_honest
        else leaf_noise(CLIPPING, initial_share=0, has_filter=True, **budget)
    )
    task = PublicTask(("a", "b", "c"), PublicGrid([(0, 1)] * 3, 16), 0.0, 1.0, 2.0, True, True)
    shape = Shape(max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=1.0, max_leaf=2.0)
    return SGBDTAmongOwners(task=task, shape=shape, noise=noise, n_trees=n_trees, delta=1e-6, **changes)


def rows(place: int, n_workers: int = 3) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(4)
    X = draw.random((N_ROWS, 3))
    y = (X[:, 0] + 0.2 * draw.standard_normal(N_ROWS) > 0.5).astype(float)
    return X[place::n_workers], y[place::n_workers]


def job(of: SGBDTAmongOwners, place: int, *, n_workers: int = 3, **changes: Any) -> WorkerJob:
    """Worker w0, w1, ...: its coins and noise come from its number, so that a test can draw them again."""
    bits = seeded(100 + place)
    X, y = rows(place, n_workers)
    settings = {
        "party": f"w{place}", "run_id": "spring", "terms": TERMS, "threshold": 2, "recipe": of, "rng": bits,
        "make_rows": lambda: of.rows(X, y, rng=bits.fork("rows")),
    }  # fmt: skip
    return WorkerJob(**{**settings, **changes})


def shape_bits(n_workers: int = 3) -> BitSource:
    """The public bits of these workers."""
    random = [seeded(100 + place).fork("public").words(4).tobytes() for place in range(n_workers)]
    names = tuple(f"w{place}" for place in range(n_workers))
    committed = [commitment("spring", name, each) for name, each in zip(names, random, strict=True)]
    as_rows = [np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32) for parts in (committed, random)]
    return public_bits("spring", names, *as_rows)


def simulated(of: SGBDTAmongOwners, *, whole: bool = False) -> list[list[float]]:
    """The trees' leaves with all rows in one holder, or in three of this process."""
    if whole:
        X, y = (np.concatenate(parts) for parts in zip(*(rows(place) for place in range(3)), strict=True))
        holder = of.rows(X, y, rng=seeded(0))
    else:
        holders = [of.rows(*rows(place), rng=seeded(100 + place).fork("rows")) for place in range(3)]
        holder = SummedHolders(holders)
    return leaves(of.train(holder, shape_bits=shape_bits(), rng=seeded(8)))


def leaves(ensemble: Any) -> list[list[float]]:
    return [tree.values.tolist() for tree in ensemble.trees]


class Run:
    """A coordinator with its workers, each in a thread; ends what it began."""

    def __init__(self, folder: Path, carrier: str) -> None:
        self.events: list[tuple[str, str]] = []
        self.found: dict[str, Any] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._carrier = carrier
        self._near: list[Channel] = []
        self._far: dict[str, Channel] = {}
        names = [f"w{place}" for place in range(4)]
        if carrier == "curve":
            self._keys = {name: read_secret(generate(folder, name)[0]) for name in ("hub", *names)}
            self._folder = folder

    def lasting(self, place: int) -> dict[str, Any]:
        """What a worker's job has that knows the others' keys."""
        others = [f"w{other}" for other in range(3) if other != place]
        keys = {name: self._keys[name].public for name in others}
        return {"identity": self._keys[f"w{place}"], "lasting_keys": keys}

    def open(self, n_workers: int) -> None:
        names = [f"w{place}" for place in range(n_workers)]
        if self._carrier == "memory":
            for name in names:
                near, far = memory_pair("hub", name)
                self._near.append(near)
                self._far[name] = far
            self._close = lambda: [channel.close() for channel in self._near]
        else:
            peers = {name: self._keys[name].public for name in names}
            self._listener = Listener("tcp://127.0.0.1:*", peers, keys=self._keys["hub"], timing=TIMING)
            self._near = [self._listener.channel(name) for name in names]
            self._close = self._listener.close

    def channel(self, name: str) -> Channel:
        """The end of a worker; over CURVE a new one each time."""
        if self._carrier == "memory":
            return self._far[name]
        return ConnectedChannel(
            self._listener.address, name=name, peer="hub", keys=self._keys[name], peer_key=self._keys["hub"].public,
            timing=TIMING,
        )  # fmt: skip

    def start(self, name: str, call: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                self.found[name] = call()
            except BaseException as error:
                self.found[name] = error

        self._threads[name] = threading.Thread(target=run, daemon=True)
        self._threads[name].start()

    def start_hub(self, of: Any, n_workers: int = 3, **changes: Any) -> None:
        self.open(n_workers)
        group = {"channels": self._near, "run_id": "spring", "terms": TERMS, "threshold": 2, "wait_s": 5.0,
                 "patience_s": 5.0, "note": lambda *event: self.events.append(event), **changes}  # fmt: skip

        def lead() -> SharedModel:
            try:
                return coordinate(of, WorkerGroup(**group), rng=seeded(8))
            finally:
                self._close()

        self.start("hub", lead)

    def start_worker(
        self, a_job: WorkerJob, *, through: Callable[[Channel], Channel] = lambda channel: channel
    ) -> None:
        def take_part() -> Any:
            channel = through(self.channel(a_job.party))
            try:
                return work(a_job, channel)
            finally:
                channel.close()

        self.start(a_job.party, take_part)

    def join(self, *names: str, seconds: float = 20.0) -> dict[str, Any]:
        for name in names or tuple(self._threads):
            self._threads[name].join(seconds)
            assert name in self.found, f"{name} still works after {seconds} s"
        return self.found


@pytest.fixture(params=["memory", "curve"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(tmp_path, request.param)


@pytest.fixture
def curve(tmp_path: Path) -> Run:
    return Run(tmp_path, "curve")


@pytest.fixture
def memory(tmp_path: Path) -> Run:
    return Run(tmp_path, "memory")


class Meddling:
    """A channel whose owner does something before a message of one kind leaves."""

    def __init__(self, channel: Channel, kind: str, act: Callable[[Message], Message | None], *, nth: int = 0) -> None:
        self._channel = channel
        self._kind, self._act, self._left = kind, act, nth

    def send(self, message: Message) -> None:
        if message.kind == self._kind:
            self._left -= 1
            if self._left == -1:
                changed = self._act(message)
                if changed is None:
                    return
                message = changed
        self._channel.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def meddling(kind: str, act: Callable[[Message], Message | None], *, nth: int = 0) -> Callable[[Channel], Any]:
    return lambda channel: Meddling(channel, kind, act, nth=nth)


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


class Dies(Exception):
    pass


def die(message: Message) -> None:
    raise Dies


def test_a_worker_that_dies_at_any_step_of_a_round_is_left_out_and_the_others_go_on(run: Run) -> None:
    of = recipe()
    run.start_hub(of, patience_s=3.0)
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
    memory.start_hub(of, patience_s=3.0)
    for place in range(3):
        memory.start_worker(job(of, place), **({"through": meddling(kind, die)} if place == 2 else {}))
    found = memory.join()
    assert len(found["hub"].ensemble.trees) == N_TREES
    same_first = leaves(found["hub"].ensemble)[0] == simulated(of)[0]
    assert same_first == (kind != "parcel")


def test_below_the_threshold_the_run_ends_and_says_so(run: Run) -> None:
    of = recipe()
    run.start_hub(of, wait_s=1.0, patience_s=3.0)
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
    assert [each.n_trees for each in answered] == [1, 2, 3, 4]
    again: list[Answered] = []
    curve.start_worker(job(of, 2, answered=answered[-1], note_answer=again.append, drawing=noted[0]))
    found = curve.join()
    numbers = [each.n_trees for each in again]
    assert numbers[0] > 4
    assert numbers == sorted(set(numbers))
    assert len(found["w2"]) == 30
    assert [event for event, _ in curve.events] == ["dropped out", "returned"]


def test_a_new_process_does_not_answer_for_an_old_tree_even_if_it_is_asked(memory: Run) -> None:
    """A coordinator that was started again under the same run id asks from the first tree on."""
    of = recipe()
    memory.start_hub(of, wait_s=1.0)
    for place in range(3):
        memory.start_worker(job(of, place, answered=Answered(n_trees=2)))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    assert "0 of 3 workers are there" in str(found["hub"])


@pytest.mark.parametrize(
    "vector",
    [np.zeros(3, "<u8"), np.zeros(8, "<u4"), np.zeros((8, 1), "<u8")],
    ids=["wrong length", "smaller field", "two dimensions"],
)
def test_a_malformed_vector_costs_its_sender_the_run_and_nobody_else(run: Run, vector: np.ndarray) -> None:
    of = recipe()
    run.start_hub(of, patience_s=3.0)

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
    assert "the shares of w0's secret do not fit together" in str(found["hub"])


def test_other_terms_are_told_on_both_sides_and_nothing_is_asked(run: Run) -> None:
    of = recipe()
    run.start_hub(of)
    for place in range(3):
        terms = {**TERMS, "epsilon": 0.5} if place == 1 else TERMS
        run.start_worker(job(of, place, terms=terms))
    found = run.join()
    assert isinstance(found["hub"], Disagreement)
    assert "epsilon: w1 has 0.5, this party 2.0" in str(found["hub"])
    assert isinstance(found["w1"], (Disagreement, PeerAborted))
    assert "epsilon" in str(found["w1"])


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

    memory.start_hub(Chooser(), wait_s=1.0)
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
            holder.add_histograms(np.array([0], np.int32), np.zeros((1, 2, of.task.grid.axes.n_bins), np.int64))

        guarantee = of.guarantee

    memory.start_hub(Curious(), wait_s=1.0)
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

    memory.start_hub(Lost(), wait_s=1.0)
    for place in range(3):
        memory.start_worker(job(of, place))
    found = memory.join()
    assert isinstance(found["w0"], UnexpectedMessage)
    assert "nodes that the tree does not have as leaves" in str(found["w0"])

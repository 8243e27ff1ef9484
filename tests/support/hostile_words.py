"""Random and mutated messages of a coordinator, thrown at a worker before the messages of a real training.

``python -m tests.support.checked tests.support.hostile_words [--seed N] [--trusting] COUNT TARGET [TARGET ...]`` writes
figures as JSON. It ends with an error if a message that was refused changed anything, or if one ended in anything but
an error of ours, took over a minute, or took over four gigabytes. A worker that refused all that was thrown must end
with the trees of the training alone. With `--trusting` columns and cuts are not verified, which must not go well.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np

from opboost.horizontal.inprivate.training import run_chain
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.calibration import recommended_among_owners
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import seeded
from opboost.trees.kernels.walk import add_leaves
from opboost.trees.splitting import Splits
from parties.errors import EXPECTED_ERRORS
from parties.horizontal.chain.checkpoint import Turn
from parties.horizontal.chain.tree_messages import received_tree, tree_message
from parties.horizontal.row_partitions import PartsHere
from parties.horizontal.verified_rows import VerifiedRows, _is_ascending
from parties.horizontal.worker import WorkerJob
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import PassTree
from protocols.messages.message import Message
from tests.support import chains, federated_workers, row_partitions, workers
from tests.support.digests import digest
from tests.support.mutations import changed, random_message
from tests.support.one_worker import LoneWorker, lead, over_the_wire

# The first message of a kind may wait for compiled code on a busy machine.
LONGEST_S, MOST_BYTES = 300, 4 << 30


class Over(Exception):
    """The worker took what was thrown: it now follows another training."""


class TrustingRows(VerifiedRows):
    """The twin: columns and cuts are as a message says."""

    def _grow(self, tree: Any, nodes: Any, chosen: Any) -> None:
        if not _is_ascending(nodes, tree.first, tree.n_nodes):
            raise UnexpectedMessage("splits of nodes that are not the newest level")
        lefts = (tree.n_nodes + 2 * np.arange(len(nodes))).astype(np.int32)
        table = np.arange(self._columns.axes.largest) <= chosen.cuts[:, None]
        table[:, -1] = chosen.missing_left
        splits = Splits(nodes, chosen.columns, chosen.cuts, chosen.missing_left, table, lefts, lefts + np.int32(1))
        tree.levels.append(splits)
        tree.first, tree.n_nodes = tree.n_nodes, tree.n_nodes + 2 * len(nodes)


def federated(**settings: Any) -> WorkerJob:
    of = federated_workers.recipe(**settings)
    return with_rows(federated_workers.job(of, 0), lambda: of.rows(*rows_of(0), rng=seeded(1)))


def sgbdt(*, rate: float = 1.0, **settings: Any) -> WorkerJob:
    """Six trees where the noise is for two: records pay for what they contribute."""
    of = workers.recipe(n_trees=6, **settings)
    if "n_honest" not in settings:
        budget: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "n_trees": 2, "rate": rate, "initial_share": 0}
        of = replace(of, noise=leaf_noise(workers.CLIPPING, has_filter=True, **budget))
    return with_rows(workers.job(of, 0), lambda: of.rows(*rows_of(0), rng=seeded(1)))


def recommended(n_classes: int, *, n_honest: int | None = None) -> WorkerJob:
    """Of numbers, half of the labels lie in the middle of their bounds; of several classes the last one is absent."""
    task = PublicTask(("a", "b", "c"), PublicGrid([(0, 1)] * 3, 16), 0.0, 1.0, 2.0, True, n_classes > 0)
    budget: dict[str, Any] = {"delta": 1e-6, "n_records": 240, "sizes": GivenSizes(2, 2)}
    of = recommended_among_owners(task, n_classes=n_classes, n_honest=n_honest, **budget)
    job: Any = workers.job
    return with_rows(job(of, 0), lambda: of.rows(*rows_of(0), rng=seeded(1)))


def partitions() -> WorkerJob:
    """Rows for which words are kept until something is asked."""
    folder = Path(tempfile.mkdtemp())
    row_partitions.write_rows(folder)
    of = row_partitions.recipe_of(folder, row_partitions.TRAININGS["pr"])
    files = row_partitions.files(folder)

    def rows() -> Any:
        return of.answering(row_partitions.parted(of, PartsHere(files, of, coins=None)), rng=seeded(1))

    return with_rows(replace(federated(), recipe=of), rows)


def with_rows(job: WorkerJob, make: Callable[[], Any]) -> WorkerJob:
    """A job that can be done again and again, with the same random bits."""
    return replace(job, make_rows=make)


def rows_of(place: int) -> tuple[Any, Any]:
    return workers.rows(place)


JOBS: dict[str, Callable[[], WorkerJob]] = {
    "sgbdt": sgbdt,
    "sgbdt sampled": lambda: sgbdt(rate=0.5),
    "sgbdt shares": lambda: sgbdt(n_honest=2),
    "sgbdt mean": lambda: sgbdt(is_mean_of_values=True),
    "tr": federated,
    "tr shares in batches": lambda: federated(n_honest=2, batch_size=3),
    "tr refined in batches": lambda: federated(split_candidates="ih", batch_size=4, hessian_rounds=3),
    "forest": lambda: federated(weight_update="averaging"),
    "hist": lambda: federated(split_method="hist"),
    "hist refined": lambda: federated(split_method="hist", interaction="cyclical", split_candidates="ih"),
    "pr": lambda: federated(split_method="pr", max_depth=3),
    "pr refined": lambda: federated(split_method="pr", split_candidates="ih"),
    "recommended": lambda: recommended(0),
    "recommended classes": lambda: recommended(3, n_honest=2),
    "partitions": partitions,
}
TARGETS = (*JOBS, "chain")


class Thrower:
    """Throws messages at a worker.

    Parameters
    ----------
    draw : random.Random
    pool : sequence of Message
        Of a real training.

    Attributes
    ----------
    counts : Counter
        Of what was refused, by error, and of what was taken, by kind.
    """

    def __init__(self, draw: random.Random, pool: Sequence[Message]) -> None:
        self._draw = draw
        self._pool = pool
        self.counts: Counter[str] = Counter()
        self._known: bytes | None = None

    def before(self, worker: LoneWorker) -> Callable[[Message], None]:
        """What comes before the messages of a training, from a random one of them on."""
        draw, n_left = self._draw, self._draw.randrange(len(self._pool))
        n_at_once = draw.choice((1, 9))
        self._known = None

        def throw_some(due: Message) -> None:
            nonlocal n_left
            n_left -= 1
            for _ in range(draw.choice((0, 0, 0, 1, n_at_once)) if n_left < 0 else 0):
                if self.throw(worker, due):
                    for _ in range(draw.choice((0, 40, 400))):
                        self.throw(worker, draw.choice(self._pool))
                    raise Over
            self._known = None

        return throw_some

    def throw(self, worker: LoneWorker, due: Message) -> bool:
        """Whether the worker took a message; one that it refuses must change nothing."""
        message, keys = self._message(due), dict(vars(worker.summed))
        before, n_sent = self._known or self._state(worker), len(worker.sent.messages)
        self._known = None
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        try:
            worker.handle(message)
        except EXPECTED_ERRORS as refusal:
            self.counts[f"refused: {type(refusal).__name__}"] += 1
        else:
            self.counts[f"taken: {message.kind}"] += 1
            return True
        self._known = self._state(worker)
        assert self._known == before, f"a refused message changed the worker: {message!r}"
        assert len(worker.sent.messages) == n_sent, f"a refused message was answered: {message!r}"
        # A refusal ends the conversation, and with it the keys of secure aggregation.
        vars(worker.summed).update(keys)
        return False

    @staticmethod
    def _state(worker: LoneWorker) -> bytes:
        session = worker.session
        return digest([session._rows, session._wanted, session.trees, worker.notes])

    def _message(self, due: Message) -> Message:
        match self._draw.randrange(6):
            case 0 | 1:
                return changed(due, self._draw)
            case 2:
                return self._draw.choice(self._pool)
            case 3:
                return changed(self._draw.choice(self._pool), self._draw)
        return random_message(self._draw)


def attack(name: str, count: int, draw: random.Random, verified: type[VerifiedRows]) -> dict[str, Any]:
    """Throw so many messages at workers of a recipe; figures."""
    job, pool = JOBS[name](), list[Message]()
    wanted = digest(lead(LoneWorker(job), pool.append).trees)
    thrower, n_runs, n_whole = Thrower(draw, pool), 0, 0
    limit_memory()
    while thrower.counts.total() < count:
        worker = LoneWorker(job, verified)
        n_runs += 1
        try:
            model = lead(worker, thrower.before(worker))
        except Over:
            continue
        assert digest(model.trees) == digest(job.recipe.model(worker.session.trees).trees) == wanted
        n_whole += 1
    return {"runs": n_runs, "runs that refused all": n_whole, **thrower.counts}


def attack_chain(count: int, draw: random.Random) -> dict[str, Any]:
    """The same for the trees that go along a chain of owners."""
    of = chains.recipe()
    owners = [chains.owner_of(of, place) for place in range(3)]
    trees = run_chain(owners, n_rounds=of.settings.n_rounds, epsilon=of.epsilon)
    pool = [tree_message(0, Turn(tree=tree, is_secure=False), of.epsilon) for tree in trees]
    counts: Counter[str] = Counter()
    limit_memory()
    while counts.total() < count:
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        message = changed(draw.choice(pool), draw) if draw.random() < 0.7 else random_message(draw)
        before = digest(owners[0])
        try:
            said = over_the_wire(message)
            if not isinstance(said, PassTree):
                continue
            tree = received_tree(said, of, "north")
            owners[0].receive(tree)
        except EXPECTED_ERRORS as refusal:
            counts[f"refused: {type(refusal).__name__}"] += 1
            assert digest(owners[0]) == before, f"a refused message changed the owner: {message!r}"
            continue
        counts[f"taken: {said.kind}"] += 1
        assert np.isfinite(of.ensemble([tree]).predict(chains.rows(0)[0])).all()
        if counts.total() % 500 == 0:
            owners = [chains.owner_of(of, place) for place in range(3)]
    return dict(counts)


def limit_memory() -> None:
    """Leave four gigabytes of addresses from here on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))


def check_that_indices_are_checked() -> None:
    try:
        add_leaves(np.zeros(1), np.full(1, 200, np.uint8), np.zeros(3))
    except IndexError:
        return
    raise AssertionError("compiled code does not check its indices; start this with tests.support.checked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="messages for each target")
    parser.add_argument("targets", nargs="+", choices=(*TARGETS, "all"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trusting", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("error")
    numba.set_num_threads(1)
    check_that_indices_are_checked()
    for name in TARGETS if "all" in options.targets else options.targets:
        start, draw = time.perf_counter(), random.Random(f"{name} {options.seed}")
        if name == "chain":
            found = attack_chain(options.count, draw)
        else:
            found = attack(name, options.count, draw, TrustingRows if options.trusting else VerifiedRows)
        sys.stdout.write(json.dumps({"target": name, "seconds": round(time.perf_counter() - start, 1), **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""A coordinator that makes up workers: what it reads of a real one, and that known keys stop it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.rng import seeded
from opboost.trees.holder import SummedHolders
from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.worker import WorkerJob
from protocols.errors import SumRefused, TooFewWorkers
from protocols.messages.horizontal import Commitments
from protocols.messages.message import Message
from tests.support.lasting_keys import lasting
from tests.support.workers import CLIPPING, Dies, Meddling, Run, die, job, leaves, meddling, recipe, rows, shape_bits


def ghost(of: SGBDTAmongOwners, place: int, **changes: Any) -> WorkerJob:
    """A worker without rows that adds no noise: all that it adds is known to whoever runs it."""
    noise = leaf_noise(CLIPPING, initial_share=0, epsilon=2.0, delta=1e-6, n_trees=of.n_trees)
    silent = SGBDTAmongOwners(task=of.task, settings=of.settings, noise=noise, n_trees=of.n_trees, delta=1e-6)
    nobody = np.empty((0, 3)), np.empty(0)
    return job(of, place, make_rows=lambda: silent.rows(*nobody, rng=seeded(0)), **changes)


@pytest.fixture
def memory(tmp_path: Path) -> Run:
    return Run(tmp_path, "memory")


def test_among_ghosts_a_worker_hides_behind_its_own_share_alone(memory: Run) -> None:
    of = recipe(n_honest=2)
    memory.start_hub(of)
    memory.start_worker(job(of, 0))
    for place in (1, 2):
        memory.start_worker(ghost(of, place))
    found = memory.join()
    alone = of.rows(*rows(0), rng=seeded(100).fork("rows"))
    of_one = of.train(alone, shape_bits=shape_bits(), rng=seeded(8))
    assert leaves(found["hub"].ensemble) == leaves(of_one)
    # Which is worth more than was promised, and is said.
    said = SGBDTAmongOwners(
        task=of.task, settings=of.settings, noise=of.noise, n_trees=of.n_trees, delta=1e-6, are_owners_known=False
    ).guarantee(is_secure=True)
    assert said.weaker[-1].epsilon == epsilon_of_shares(of.noise, 1, delta=1e-6) > 1.4 * said.epsilon


def test_a_worker_that_knows_the_others_keys_shares_no_secret_with_ghosts_and_reveals_nothing(memory: Run) -> None:
    of = recipe(n_honest=2)
    names = [f"w{place}" for place in range(3)]
    memory.start_hub(of, wait_s=0.5)
    keys = {name: lasting(name).public for name in names}
    given: list[tuple[str, ...]] = []
    known: dict[str, Any] = {"identity": lasting("w0"), "lasting_keys": keys}
    memory.start_worker(job(of, 0, **known, note_answer=lambda answered: given.append(answered.survivors)))
    for place in (1, 2):
        memory.start_worker(ghost(of, place, identity=lasting(f"not w{place}"), lasting_keys=keys))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    # Its own confirmation alone is right to it, so that it gave no share; of two ghosts one at least would be honest.
    assert "it calls the confirmations of w1, w2 wrong, of which some must be right" in str(found["w0"])
    assert given == [()]


def test_a_worker_that_knows_the_others_keys_takes_no_others_in(memory: Run) -> None:
    of = recipe(n_honest=2)
    memory.start_hub(of, wait_s=0.5)
    memory.start_worker(job(of, 0, identity=lasting("w0"), lasting_keys={"w1": lasting("w1").public}))
    for place in (1, 2):
        memory.start_worker(ghost(of, place))
    assert "no public key is known here of the workers w2; nothing was sent" in str(memory.join()["w0"])


def test_public_bits_whose_drawing_was_broken_off_are_drawn_again_the_same(tmp_path: Path) -> None:
    """Otherwise whoever breaks off after it has seen them could choose, and the model would be another one."""
    of, journal, noted = recipe(), RoundJournal(), dict[str, bytes]()

    def attempt(patience_s: float, **of_last: Any) -> dict[str, Any]:
        run = Run(tmp_path, "memory")
        run.start_hub(of, journal=journal, patience_s=patience_s)
        for place in range(3):
            name = f"w{place}"
            known = {"drawing": noted[name], "n_drawings": 1} if name in noted else {}
            a_job = job(of, place, note_drawing=partial(noted.__setitem__, name), **known)
            run.start_worker(a_job, **(of_last if place == 2 else {}))
        return run.join()

    assert "w2 did not reveal" in str(attempt(0.3, through=meddling("reveal", die))["hub"])
    assert len(noted) == 3
    holders = [of.rows(*rows(place), rng=seeded(100 + place).fork("rows")) for place in range(3)]
    whole = of.train(SummedHolders(holders), shape_bits=shape_bits(), rng=seeded(8))
    assert leaves(attempt(30.0)["hub"].ensemble) == leaves(whole)


def test_a_worker_that_is_gone_once_it_has_revealed_its_bytes_ends_no_run(memory: Run) -> None:
    class Leaving(Meddling):
        def send(self, message: Message) -> None:
            super().send(message)
            if message.kind == "reveal":
                self._channel.close()
                raise Dies

    of = recipe()
    memory.start_hub(of)
    for place in range(2):
        memory.start_worker(job(of, place))
    memory.start_worker(job(of, 2), through=lambda channel: Leaving(channel, "", die))
    found = memory.join()
    assert isinstance(found["w2"], Dies)
    assert leaves(found["hub"].ensemble) == [tree.values.tolist() for tree in found["w0"]]


def test_a_drawing_that_fails_twice_begins_anew(memory: Run) -> None:
    """So no worker that has lost its random bytes makes a run unfinishable."""
    of, journal = recipe(), RoundJournal()
    names = ("w0", "w1", "w2")
    journal.note_commitments(Commitments(names=names, rows=np.zeros((3, 32), np.uint8), is_open=True))
    memory.start_hub(of, journal=journal, patience_s=0.3)
    for place in range(3):
        memory.start_worker(job(of, place))
    found = memory.join()
    assert "own commitment is not in the list" in str(found["w0"])
    assert isinstance(found["hub"], TooFewWorkers)
    assert journal.commitments is None

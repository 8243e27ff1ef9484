"""A coordinator that makes up workers: what it reads of a real one, and that known keys stop it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.rng import seeded
from parties.horizontal.worker import WorkerJob
from protocols.errors import SumRefused
from tests.support.lasting_keys import lasting
from tests.support.workers import CLIPPING, Run, job, leaves, recipe, rows, shape_bits


def ghost(of: SGBDTAmongOwners, place: int, **changes: Any) -> WorkerJob:
    """A worker without rows that adds no noise: all that it adds is known to whoever runs it."""
    noise = leaf_noise(CLIPPING, initial_share=0, epsilon=2.0, delta=1e-6, n_trees=of.n_trees)
    silent = SGBDTAmongOwners(task=of.task, shape=of.shape, noise=noise, n_trees=of.n_trees, delta=1e-6)
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
        task=of.task, shape=of.shape, noise=of.noise, n_trees=of.n_trees, delta=1e-6, are_owners_known=False
    ).guarantee(is_secure=True)
    assert said.weaker[-1].epsilon == epsilon_of_shares(of.noise, 1, delta=1e-6) > 1.4 * said.epsilon


def test_a_worker_that_knows_the_others_keys_shares_no_secret_with_ghosts_and_reveals_nothing(memory: Run) -> None:
    of = recipe(n_honest=2)
    names = [f"w{place}" for place in range(3)]
    memory.start_hub(of, wait_s=0.5)
    keys = {name: lasting(name).public for name in names}
    memory.start_worker(job(of, 0, identity=lasting("w0"), lasting_keys=keys))
    for place in (1, 2):
        memory.start_worker(ghost(of, place, identity=lasting(f"not w{place}"), lasting_keys=keys))
    found = memory.join()
    assert isinstance(found["hub"], SumRefused)
    assert "1 of 3 workers confirmed the same lists" in str(found["w0"])


def test_a_worker_that_knows_the_others_keys_takes_no_others_in(memory: Run) -> None:
    of = recipe(n_honest=2)
    memory.start_hub(of, wait_s=0.5)
    memory.start_worker(job(of, 0, identity=lasting("w0"), lasting_keys={"w1": lasting("w1").public}))
    for place in (1, 2):
        memory.start_worker(ghost(of, place))
    assert "no public key is known here of the workers w2; nothing was sent" in str(memory.join()["w0"])

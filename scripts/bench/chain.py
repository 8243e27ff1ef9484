"""How long owners of a chain wait for their first turn, with trees sent to all at once and along the order; JSON lines.

Every owner is a thread of this process with the chain's real messages over memory channels. On small tables everything
is over at once, so each owner sleeps for what a large one would cost: `RESIDUALS_S` for every tree that it takes in,
`TRAINING_S` for one of its own. Sleeping owners do not take each other's processor, as owners on hosts of their own.

`last_s` is the waiting time of the last owner, `work_s` the same without the other owners' training, which no sending
saves. Against the number of owners before it, its logarithm rises by `slope`: 1 is linear, and trees along the order
come to n (n - 1) / 2 sets of residuals one after the other (Zhao et al., INFOCOM 2018), 1.7 between 2 and 8 owners.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import say

from opboost import rng
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.inprivate.training import Owner
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.tree import Tree
from parties.horizontal.chain.checkpoint import ChainCheckpoint
from parties.horizontal.chain.job import ChainJob
from parties.horizontal.chain.turns import run_chain_owner
from parties.runs.run_folder import RunFolder
from protocols.transport.channel import Channel
from protocols.transport.memory import memory_pair

N_OWNERS = (2, 4, 8)
N_ROWS, N_COLUMNS = 300, 5
RESIDUALS_S, TRAINING_S = 0.1, 0.1


class SlowOwner:
    """An owner that takes as long as one with a large table."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.began = 0.0

    def receive(self, tree: Tree) -> None:
        time.sleep(RESIDUALS_S)
        self._owner.receive(tree)

    def take_turn(self, epsilon: float) -> Tree:
        self.began = time.perf_counter()
        time.sleep(TRAINING_S)
        return self._owner.take_turn(epsilon)


def recipe() -> InPrivateAmongOwners:
    names = tuple(f"c{column}" for column in range(N_COLUMNS))
    task = PublicTask(names, PublicGrid([(0, 1)] * N_COLUMNS, 16), 0.0, 1.0, 1.0, True, True)
    settings = InPrivateSettings(n_rounds=1, max_depth=3, learning_rate=0.5, reg_lambda=1.0, noise_lambda=2.0)
    return InPrivateAmongOwners(task=task, settings=settings)


def slow_owner(place: int) -> SlowOwner:
    draw = np.random.default_rng(place)
    X = draw.random((N_ROWS, N_COLUMNS))
    return SlowOwner(recipe().owner(X, (X[:, 0] > 0.5).astype(float), coins=rng.secure(), rng=rng.secure()))


def waiting_times(n_owners: int, *, broadcast: bool, root: Path) -> list[float]:
    """Seconds until each owner's turn began."""
    order = tuple(f"w{place}" for place in range(n_owners))
    channels: dict[str, dict[str, Channel]] = {name: {} for name in order}
    for place, name in enumerate(order):
        for other in order[place + 1 :]:
            channels[name][other], channels[other][name] = memory_pair(name, other)
    owners = [slow_owner(place) for place in range(n_owners)]

    def be(place: int) -> None:
        folder = RunFolder(root / f"{n_owners}-{broadcast}-{place}")
        (folder.path / "turns").mkdir(parents=True)
        job = ChainJob(
            party=order[place],
            run_id="bench",
            order=order,
            terms={},
            broadcast=broadcast,
            recipe=recipe(),
            make_owner=lambda: owners[place],  # type: ignore[arg-type, return-value]
            is_secure=True,
            checkpoint=ChainCheckpoint(folder),
            calls=frozenset(order[place + 1 :]),
        )
        run_chain_owner(job, channels[order[place]])

    threads = [threading.Thread(target=be, args=(place,)) for place in range(n_owners)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [owner.began - start for owner in owners]


def measure(*, broadcast: bool, root: Path) -> list[dict[str, Any]]:
    """A line per number of owners, and one for the slope."""
    found, works = [], []
    for n_owners in N_OWNERS:
        waits = waiting_times(n_owners, broadcast=broadcast, root=root)
        works.append(waits[-1] - (n_owners - 1) * TRAINING_S)
        found.append(
            {
                "bench": "chain",
                "broadcast": broadcast,
                "owners": n_owners,
                "waits_s": [round(wait, 3) for wait in waits],
                "last_s": round(waits[-1], 3),
                "work_s": round(works[-1], 3),
            }
        )
    slope = np.polyfit(np.log(np.array(N_OWNERS) - 1), np.log(works), 1)[0]
    return [*found, {"bench": "chain", "broadcast": broadcast, "slope": round(float(slope), 2)}]


def main() -> None:
    slow_owner(0).take_turn(1.0)
    with tempfile.TemporaryDirectory() as root:
        for broadcast in (True, False):
            for line in measure(broadcast=broadcast, root=Path(root)):
                say(**line)


if __name__ == "__main__":
    main()

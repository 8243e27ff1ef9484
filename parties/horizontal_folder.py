"""What the roles of horizontal training do with their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opboost import rng
from opboost.trees.model_file import save_model
from opboost.trees.tree import Ensemble
from parties.chain_config import OwnerRun
from parties.files import replacing
from parties.horizontal_config import CoordinatorRun, WorkerRun
from parties.jobs import Terminal, recorded
from parties.runlog import RunLog
from parties.store import RunFolder, RunState


@contextmanager
def logged(
    folder: RunFolder, path: Path, run: CoordinatorRun | WorkerRun | OwnerRun, terminal: Terminal
) -> Iterator[RunLog | None]:
    """Make the run folder or take it up, for this process alone, with its log; None if the run is finished."""
    with folder.locked():
        state = folder.create(path, party=run.party, role=run.role)
        if state is RunState.FINISHED:
            finished = folder.read_json("meta.json")["finished"]
            terminal.say(f"run {run.run_id!r} of {run.party} was finished at {finished}; nothing was done")
            yield None
            return
        with recorded(folder, terminal) as log:
            if state is RunState.UNFINISHED:
                log.step("resumed", f"{run.party} comes back to run {run.run_id!r}")
            yield log


def bits_of(seed: int | None) -> rng.BitSource:
    """Secure bits; with a seed bits that can be drawn again, on which no guarantee rests."""
    return rng.secure() if seed is None else rng.seeded(seed)


def save_trees(folder: RunFolder, ensemble: Ensemble) -> None:
    """Keep the model."""
    with replacing(folder.path / "model.json") as partial:
        save_model(ensemble, partial)

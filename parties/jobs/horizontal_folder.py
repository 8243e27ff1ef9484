"""What the roles of horizontal training do with their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opboost import rng
from opboost.fit_quality import FitQuality
from opboost.trees.model_file import save_model
from opboost.trees.tree import Ensemble
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.errors import EXPECTED_ERRORS, RunFolderError
from parties.jobs.train_vertical import Terminal, recorded
from parties.runs.run_folder import RunFolder, RunState
from parties.runs.run_log import RunLog
from parties.storage.atomic_files import replacing


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


def note_drawing(folder: RunFolder, drawing: bytes) -> None:
    """Keep for which drawing of public bits a worker is about to reveal its random bytes."""
    folder.write_json("drawing.json", {"drawing": drawing.hex()})


def noted_drawing(folder: RunFolder) -> bytes:
    """Read what `note_drawing` kept; empty if there was none.

    Raises
    ------
    RunFolderError
        If the file is malformed.
    """
    path = folder.path / "drawing.json"
    if not path.exists():
        return b""
    try:
        return bytes.fromhex(folder.read_json(path.name)["drawing"])
    except (KeyError, TypeError, ValueError):
        raise RunFolderError(f"{path} is malformed; choose another run_id. Nothing was sent") from None


def save_trees(folder: RunFolder, ensemble: Ensemble) -> None:
    """Keep the model."""
    with replacing(folder.path / "model.json") as partial:
        save_model(ensemble, partial)


def note_own_fit(folder: RunFolder, fit: FitQuality | None) -> None:
    """Keep how the model fits an owner's own rows; both files are statistics of its labels and stay with it."""
    if fit is not None:
        folder.note_fit(fit)
    folder.write_json("metrics.json", {"own_rows": {} if fit is None else fit.metrics})


def write_report(path: Path, run: CoordinatorRun | WorkerRun | OwnerRun, terminal: Terminal) -> None:
    """Write the finished run's report. The run is done and stays so if that fails."""
    if not run.report:
        return
    from parties.reports.writing import record_report

    try:
        record_report(path).write()
    except EXPECTED_ERRORS as error:
        terminal.warn(
            f"the run is done, but its report could not be written: {error}. `opboost report` writes it again"
        )

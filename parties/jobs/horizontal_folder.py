"""What the roles of horizontal training do with their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opboost import rng
from opboost.fit_quality import FitQuality
from opboost.privacy.guarantee import RecordGuarantee
from opboost.trees.model_file import save_model
from opboost.trees.tree import Ensemble
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.errors import RunFolderError
from parties.jobs.train_vertical import EXPECTED_ERRORS, Terminal, recorded
from parties.ledger.model_ledger import RunCharge, WorkerLedger
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


def check_charge(ledger: WorkerLedger, charge: RunCharge, folder: RunFolder) -> None:
    """Refuse a run over the budget, and one that was paid for in a folder that is gone.

    Raises
    ------
    OverBudget, RunFolderError
    """
    ledger.check(charge)
    if ledger.knows(charge) and not folder.has_released:
        raise RunFolderError(
            f"run {charge.run!r} was charged for, but {folder.path} holds nothing of it, and the same charge does not "
            "pay for other answers. Bring the folder back or choose another run_id. Nothing was sent"
        )


def unknown_workers(run: CoordinatorRun | WorkerRun, promise: RecordGuarantee) -> str:
    """What a coordinator that makes up workers would learn, in words; empty where workers know each other's keys."""
    if run.training.known_workers:
        return ""
    sees = "sees the sums of one worker alone"
    if run.training.honest is not None:
        worst = max((one.epsilon for one in promise.weaker), default=promise.epsilon)
        sees += f", with one share of the noise: epsilon against it is {worst:.4g}, and not {promise.epsilon:.4g}"
    return (
        "workers do not know each other's public keys (`known_workers: false`): a coordinator that makes up workers "
        f"{sees}"
    )


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

"""Run status: what a run does now, as far as its folder and its ledger tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parties.config.party_run import HORIZONTAL_ROLES
from parties.config.reading import read_any_run, read_role
from parties.config.record_runs import read_record_run
from parties.reports.ledger_statement import read_statement
from parties.reports.log_lines import log_lines
from parties.reports.plain import plain
from parties.runs.run_folder import RunFolder
from parties.storage.folder_lock import is_locked
from parties.storage.paths import is_there


@dataclass(frozen=True, slots=True)
class PeerTraffic:
    """Messages to and from a peer, by all parts of the log that are there, and when the last one came from it."""

    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    last_received: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Current status of a run.

    Attributes
    ----------
    run_id, party, role : str
    state : str
        ``not begun``, ``running``, ``finished`` or ``interrupted``.
    phase : dict or None
        Time, event and sentence of the last step.
    progress : dict or None
        Time, step, done and total of what is under way.
    peers : dict of str to PeerTraffic
        Those that this party is connected with.
    spent : dict or None
        Of a passive party: by column, spent epsilon per unit and its limit over all runs, and those of other budgets.
    """

    run_id: str
    party: str
    role: str
    state: str
    phase: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    peers: dict[str, PeerTraffic]
    spent: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Status as plain values for JSON."""
        return dict(plain(self))


def run_status(path: Path) -> RunStatus:
    """Read the status of a run of any role; nothing is changed.

    Raises
    ------
    ConfigError, RunFolderError, LedgerError
    """
    role = read_role(path)
    run = read_record_run(path) if role in HORIZONTAL_ROLES else read_any_run(path)
    folder = RunFolder(run.run_folder)
    known: dict[str, Any] = {"run_id": run.run_id, "party": run.party, "role": role}
    if not is_there(folder.path / "meta.json"):
        return RunStatus(**known, state="not begun", peers={})
    is_running = is_locked(folder.path)
    # Programs that rotate logs take them away while a run goes on, compress them as they like, and are cut off.
    lines = log_lines(folder, passes_over=True)
    steps = [{name: line[name] for name in ("time", "event", "message")} for line in lines if "message" in line]
    has_progress = is_running and (folder.path / "progress.json").exists()
    return RunStatus(
        **known,
        state="running" if is_running else "finished" if folder.is_finished else "interrupted",
        phase=steps[-1] if steps else None,
        progress=folder.read_json("progress.json") if has_progress else None,
        peers={peer: _traffic(lines, peer) for peer in run.wiring.connected},
        spent=_spent(path) if role == "passive" else None,
    )


def _traffic(lines: list[dict[str, Any]], peer: str) -> PeerTraffic:
    of_peer = [line for line in lines if line.get("peer") == peer]
    sent, received = ([line for line in of_peer if line["event"] == event] for event in ("sent", "received"))
    return PeerTraffic(
        len(sent),
        sum(message["bytes"] for message in sent),
        len(received),
        sum(message["bytes"] for message in received),
        received[-1]["time"] if received else None,
    )


def _spent(path: Path) -> dict[str, Any]:
    return {
        column.column: {
            "epsilon": column.epsilon.spent,
            "limit": column.epsilon.limit,
            **{kind: plain(getattr(column, kind)) for kind in ("category_epsilon", "cell_bits")},
        }
        for column in read_statement(path, None).columns
    }

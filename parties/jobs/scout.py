"""Scouting: release a small random part of the common records, and measure what each column adds, before the full run.

The parties train as in a full run, under the name of the run with `SCOUT` behind it, on so many records alone; the full
run holds out the same records, keeps the draws of those that were released, and pays for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from opboost.privacy.guarantee import ColumnGuarantee, Guarantee
from opboost.uplift import ColumnUse, Uplift
from parties.config.reading import check_role, read_schema, read_section
from parties.config.section import resolved
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError, RunFolderError, naming
from parties.jobs.life_cycle import Terminal
from parties.jobs.train_vertical import train_active, train_passive
from parties.reports.held_out_section import load_uplift
from parties.reports.sentences import odds
from parties.runs.joint_model import USES_FILE
from parties.runs.run_folder import RunFolder
from parties.session.reconnection import Restarts
from parties.storage.documents import read_yaml
from parties.storage.serialization import guarantee_from_dict
from parties.vertical.held_out import SCOUT
from parties.vertical.held_out_score import adds

_OFFERED = (
    "The same budget, divided by what columns add; those that were scouted are then drawn anew, and their records pay "
    "again:"
)

_USES = TypeAdapter(tuple[ColumnUse, ...])

R = TypeVar("R", ActiveRun, PassiveRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scouted:
    """Result of a scouting for one party.

    Attributes
    ----------
    folder : RunFolder
    n_records : int
        Records that were released.
    numbered : dict of str to str
        For a passive party, its columns by their opaque names; else empty.
    uplift : Uplift or None
        For the active party, of the joint model.
    uses : tuple of ColumnUse
        For the active party, the uplift of each column, and of the useless ones together.
    to_copy : dict of str to str
        For the active party, lines to copy into each party's run file.
    """

    folder: RunFolder
    n_records: int
    numbered: Mapping[str, str]
    uplift: Uplift | None = None
    uses: tuple[ColumnUse, ...] = ()
    to_copy: Mapping[str, str]


def scout(path: Path, *, records: int, insecure: bool, terminal: Terminal, restarts: Restarts | None = None) -> Scouted:
    """Run one party's side of a scouting.

    Raises
    ------
    ConfigError
        If the run file's role or settings do not allow scouting.
    """
    if check_role(path, "active", "passive") == "active":
        run = scouting(path, ActiveRun, records)
        if run.label_epsilon is not None:
            raise ConfigError(
                f"{path}: the lines that scouting offers the passive parties would tell of true labels, which "
                "`label_epsilon` protects. Choose columns by what is known without them. Nothing was sent"
            )
        folder = train_active(path, insecure=insecure, terminal=terminal, run=run, restarts=restarts)
        promises = folder.read_json("guarantee.json")
        guarantees = {peer: guarantee_from_dict(promise) for peer, promise in promises.items()}
        uses = load_uses(folder)
        helpful = {
            peer: guarantee
            for peer, guarantee in guarantees.items()
            if len(useless(peer, uses)) < len(guarantee.columns)
        }
        own = _dump({"passive": [active_lines(peer, guarantee, uses) for peer, guarantee in helpful.items()]})
        lines = {
            run.party: own if helpful else "# Nobody's columns add anything: a full run is not worth its privacy.\n"
        }
        lines |= {peer: passive_lines(peer, guarantee, uses) for peer, guarantee in guarantees.items()}
        return Scouted(
            folder=folder,
            n_records=_n_records(folder),
            numbered={},
            uplift=load_uplift(folder),
            uses=uses,
            to_copy=lines if uses else {},
        )
    passive = scouting(path, PassiveRun, records)
    if passive.desensitize.leave_out:
        raise ConfigError(f"{path}: scouting looks at every column; remove `leave_out`. Nothing was sent")
    schema, _ = read_schema(passive.table_schema)
    folder = train_passive(path, insecure=insecure, terminal=terminal, run=passive, restarts=restarts)
    numbered = {f"column {i}": name for i, name in enumerate(schema.names)}
    return Scouted(folder=folder, n_records=_n_records(folder), numbered=numbered, to_copy={})


def load_uses(folder: RunFolder) -> tuple[ColumnUse, ...]:
    """Read the uplift of columns from a scouting's folder; empty if it could not be measured.

    Raises
    ------
    RunFolderError
    """
    path = folder.path / USES_FILE
    try:
        uses = _USES.validate_python(folder.read_json(USES_FILE).get("uses")) if path.exists() else ()
    except ValidationError:
        raise _malformed(path) from None
    if not all(use.columns for use in uses):
        raise _malformed(path)
    return uses


def _n_records(folder: RunFolder) -> int:
    n_rows = folder.read_json("meta.json").get("n_rows")
    if not isinstance(n_rows, int):
        raise _malformed(folder.path / "meta.json")
    return n_rows


def _malformed(path: Path) -> RunFolderError:
    return RunFolderError(f"{path} is malformed; bring a copy of it back")


def scouting(path: Path, kind: type[R], records: int) -> R:
    """Settings of the scouting run, derived from those of a run file."""
    document = read_yaml(path)
    # The scouting's folder lies beside the full run's, even if that path ends with a slash.
    originals = {key: document.get(key) for key in ("run_id", "folder")}
    names = {key: f"{Path(name)}{SCOUT}" for key, name in originals.items() if isinstance(name, str)}
    with naming(path):
        run = read_section(kind, {**document, **names, "most_records": records, "report": False})
    return resolved(run, path.resolve().parent)


def active_lines(peer: str, guarantee: Guarantee, uses: Sequence[ColumnUse]) -> dict[str, Any]:
    """Lines for the active party's run file: the number of columns to agree on with a peer."""
    left_out = set(useless(peer, uses))
    useful = (column for column in guarantee.columns if column.column not in left_out)
    return {
        "name": peer,
        "agreed": {"columns": int(sum(column.parameters.get("n_categories", 1) for column in useful))},
    }


def passive_lines(peer: str, guarantee: Guarantee, uses: Sequence[ColumnUse]) -> str:
    """Lines for a peer's run file: the columns to leave out and, as a comment, a division of the budget."""
    if len(without := useless(peer, uses)) == len(guarantee.columns):
        return f"# No column of {peer} adds anything: the full run does without this party.\n"
    columns = "".join(_budget_line(column, loss) for column, loss in split(peer, guarantee, uses).items())
    offered = f"{_OFFERED}\ncolumns:\n{indent(columns, '  ')}" if columns else ""
    return "desensitize:\n" + indent(_dump({"leave_out": without}) + indent(offered, "# "), "  ")


def _budget_line(column: str, loss: float) -> str:
    """A line with a column's budget, and a comment with the odds that it permits."""
    line = _dump({column: {"whole_range": loss}}).rstrip()
    return f"{line}  # over the whole range, records are told apart with odds at most {odds(loss)}\n"


def useless(peer: str, uses: Sequence[ColumnUse]) -> list[str]:
    """The columns of a peer that add nothing to the score of held-out records."""
    return [use.columns[0] for use in uses if use.owner == peer and len(use.columns) == 1 and not adds(use)]


def split(peer: str, guarantee: Guarantee, uses: Sequence[ColumnUse]) -> dict[str, float]:
    """The budget of all ordered columns, divided among those that add something.

    If the noise harms by a column's use divided by the square of its budget, as its variance is, the sum is least where
    budgets are in proportion to the cube roots of the uses.
    """
    ordered = [column for column in guarantee.columns if _is_ordered(column)]
    total = sum(column.domain_loss for column in ordered)
    helpful = {use.columns[0]: use.uplift.uplift or 0.0 for use in uses if use.owner == peer and adds(use)}
    roots = {
        column.column: helpful[column.column] ** (1 / 3) for column in ordered if helpful.get(column.column, 0) > 0
    }
    return {column: float(f"{total * root / sum(roots.values()) * 0.995:.3g}") for column, root in roots.items()}


def _dump(lines: Mapping[str, Any]) -> str:
    return yaml.safe_dump(lines, sort_keys=False, default_flow_style=None)


def _is_ordered(column: ColumnGuarantee) -> bool:
    return column.mechanism != "randomised_response" and column.domain_loss < float("inf")

"""Reading of run files and schemas: YAML in, validated sections with resolved paths out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from opboost.errors import OpBoostError, shown
from opboost.schema import TableSchema, column_from_mapping
from parties.config.vertical import _ALIASES, HORIZONTAL_ROLES, ActiveRun, PassiveRun, Peer, Run
from parties.errors import ConfigError
from parties.storage.documents import explain, read_yaml

R = TypeVar("R", ActiveRun, PassiveRun)


S = TypeVar("S", bound=BaseModel)


def read_run(path: Path, kind: type[R]) -> R:
    """Read a run file of one role.

    Raises
    ------
    ConfigError
        Naming the file, the key, what was found and what is allowed.
    """
    document = read_yaml(path)
    try:
        run = kind.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error)}") from None
    return _resolve(run, path.resolve().parent, path)


def read_any_run(path: Path) -> Run:
    """Read a run file of either role of vertical training.

    Raises
    ------
    ConfigError
    """
    return read_run(path, ActiveRun) if read_role(path) == "active" else read_run(path, PassiveRun)


def read_section(kind: type[S], settings: dict[str, Any]) -> S:
    """Check settings that do not come from a file.

    Raises
    ------
    ConfigError
    """
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def read_role(path: Path) -> str:
    """Which role a run file is for."""
    role = read_yaml(path).get("role")
    role = _ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in ("active", "passive", *HORIZONTAL_ROLES):
        raise ConfigError(
            f"{path}: role must be active or passive, or {', '.join(HORIZONTAL_ROLES[:-1])} or {HORIZONTAL_ROLES[-1]}; "
            f"found {shown(role)}"
        )
    return str(role)


def read_schema(path: Path) -> tuple[TableSchema, tuple[str, ...]]:
    """Read a schema file: the table's description, and the columns of the file to ignore.

    Raises
    ------
    ConfigError
    """
    document = read_yaml(path)
    unknown = sorted(map(str, set(document) - {"id", "label", "columns", "ignore"}))
    columns, ignore = document.get("columns"), document.get("ignore", [])
    if unknown:
        raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}; allowed are id, label, columns, ignore")
    if not isinstance(columns, dict) or not all(isinstance(column, dict) for column in columns.values()):
        raise ConfigError(f"{path}: `columns` must map each column's name to its description")
    if not isinstance(ignore, list):
        raise ConfigError(f"{path}: `ignore` must be a list of column names")
    try:
        described = tuple(
            column_from_mapping(_name(name, "a column's name"), column) for name, column in columns.items()
        )
        ids, label = document.get("id", "id"), document.get("label")
        schema = TableSchema(
            columns=described,
            id=tuple(_name(one, "`id`") for one in ids) if isinstance(ids, list) else _name(ids, "`id`"),
            label=None if label is None else _name(label, "`label`"),
        )
        left_out = tuple(_name(name, "`ignore`") for name in ignore)
        for key, names in (("columns", schema.names), ("id", schema.id_columns), ("label", (schema.label,))):
            if both := sorted({name for name in names if name in left_out and name is not None}):
                raise ConfigError(f"{', '.join(both)} stand under `{key}` and under `ignore`; name each once")
    except (OpBoostError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return schema, left_out


def _name(found: object, what: str) -> str:
    """A column's name, which may be a number; YAML reads ``yes`` and ``no`` as truth values."""
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise ConfigError(f"{what} reads as {shown(found)}; put words like yes and no in quotes")
    return str(found)


def _resolve(run: R, folder: Path, path: Path) -> R:
    """Make every path of a run file absolute."""
    update: dict[str, Any] = {}
    for key in ("data", "table_schema", "ids", "secret_key"):
        value = getattr(run, key)
        update[key] = folder / value if value is not None else None
    update["align"] = run.align.within(folder)
    of_run = folder / (run.folder or Path("runs") / run.run_id)
    partitions = folder / run.dask.folder if run.dask.folder is not None else of_run.parent / "partitions"
    update |= {"folder": of_run, "dask": run.dask.model_copy(update={"folder": partitions})}
    if isinstance(run, ActiveRun):
        update["passive"] = tuple(_resolve_peer(peer, folder) for peer in run.passive)
        parties = [run.party, *(peer.name for peer in run.passive)]
        if len(set(parties)) < len(parties):
            raise ConfigError(f"{path}: parties must have distinct names; found {', '.join(parties)}")
    else:
        update["active"] = _resolve_peer(run.active, folder)
        update["ledger"] = run.ledger.model_copy(update={"path": folder / run.ledger.path})
    return run.model_copy(update=update)


def _resolve_peer(peer: Peer, folder: Path) -> Peer:
    return peer.model_copy(update={"public_key": folder / peer.public_key if peer.public_key is not None else None})

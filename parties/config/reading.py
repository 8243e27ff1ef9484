"""Run files and schemas: read from YAML, checked, with resolved paths."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from opboost.errors import nearest, shown
from opboost.schema import ColumnSchema, Missing, TableSchema
from opboost.trees.tree import Ensemble
from parties.config.party_run import HORIZONTAL_ROLES, ROLE_ALIASES, PartyRun
from parties.config.reader_section import LABEL_TERM, ReadingSection, check_complete, check_words, described_column
from parties.config.section import resolved
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError, RunFolderError, naming
from parties.runs.model_share import KEPT_SCHEMA
from parties.storage.documents import explain, read_yaml

READING_KEYS = frozenset(ReadingSection.model_fields)
SCHEMA_KEYS = {"id", "label", "weight", "group", "base_margin", "columns", "ignore"} | READING_KEYS

S = TypeVar("S", bound=BaseModel)


def read_run(path: Path, kind: type[S]) -> S:
    """Read a run file of one role, with its paths resolved against the folder that holds it.

    Raises
    ------
    ConfigError
        Naming the file, the key, what was found and what is allowed.
    """
    document = read_yaml(path)
    if issubclass(kind, PartyRun):
        _check_role(path, _known_role(document), get_args(kind.model_fields["role"].annotation))
    with naming(path):
        run = resolved(read_section(kind, document), path.resolve().parent)
        if isinstance(run, PartyRun):
            _check_kept_files(run)
        return run


def _check_kept_files(run: PartyRun) -> None:
    folder = os.path.realpath(run.run_folder)
    for key, path in run.kept_files.items():
        if not path.name:
            raise ConfigError(f"{key}: {path} is a folder, where a file is needed. Nothing was sent")
        if Path(os.path.realpath(path)).is_relative_to(folder):
            raise ConfigError(
                f"{key}: {path} lies in the run folder {run.run_folder}, which holds one run and nothing else; name "
                "another place. Nothing was sent"
            )


def read_any_run(path: Path) -> ActiveRun | PassiveRun:
    """Read a run file of either role of vertical training.

    Raises
    ------
    ConfigError
    """
    is_active = check_role(path, "active", "passive") == "active"
    return read_run(path, ActiveRun) if is_active else read_run(path, PassiveRun)


def read_section(kind: type[S], settings: dict[str, Any]) -> S:
    """Check the settings of a run file, or of a section that does not come from a file.

    Raises
    ------
    ConfigError
        Naming the key, what was found and what is allowed.
    """
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error, kind)) from None


def read_role(path: Path) -> str:
    """Read the role that a run file is for."""
    document = read_yaml(path)
    if (role := _known_role(document)) is None:
        raise ConfigError(
            f"{path}: role must be active or passive, or {', '.join(HORIZONTAL_ROLES[:-1])} or {HORIZONTAL_ROLES[-1]}; "
            f"found {shown(document.get('role'))}"
        )
    return role


def check_role(path: Path, *allowed: str) -> str:
    """Read the role that a run file is for, and refuse the run file of a role that a command is not for.

    Raises
    ------
    ConfigError
        Naming the roles that the command is for, and the file's.
    """
    _check_role(path, role := read_role(path), allowed)
    return role


def _check_role(path: Path, role: str | None, allowed: Sequence[str]) -> None:
    if role is not None and role not in allowed:
        *others, last = allowed
        takes = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{path} is of role {role}; this command takes a run file of role {takes}. Nothing was done")


def _known_role(document: Mapping[str, Any]) -> str | None:
    """The role of a run file by its own name; None if it names none that there is."""
    role = document.get("role")
    role = ROLE_ALIASES.get(role, role) if isinstance(role, str) else role
    return str(role) if role in ("active", "passive", *HORIZONTAL_ROLES) else None


def read_schema(path: Path) -> tuple[TableSchema, tuple[str, ...]]:
    """Read a schema file: the table's description, and the columns of the file to ignore.

    Raises
    ------
    ConfigError
    """
    document = read_yaml(path)
    unknown = sorted(map(str, set(document) - SCHEMA_KEYS))
    columns, ignore = document.get("columns"), document.get("ignore", [])
    if unknown:
        allowed = f"allowed are {', '.join(sorted(SCHEMA_KEYS))}{nearest(unknown, SCHEMA_KEYS)}"
        raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}; {allowed}")
    if not isinstance(columns, dict) or not all(isinstance(column, dict) for column in columns.values()):
        raise ConfigError(f"{path}: `columns` must map each column's name to its description")
    if not isinstance(ignore, list):
        raise ConfigError(f"{path}: `ignore` must be a list of column names")
    with naming(path):
        check_complete(columns, document.get("reader"), document.get("positive"))
        keys = read_section(ReadingSection, {key: document[key] for key in READING_KEYS & document.keys()})
        described = [described_column(_name(name, "a column's name"), column) for name, column in columns.items()]
        ids, labels = document.get("id", "id"), _names(document.get("label"), "`label`")
        label = labels[0] if labels else None
        schema = TableSchema(
            columns=tuple(column for column, _ in described),
            id=tuple(_name(name, "`id`") for name in ids) if isinstance(ids, list) else _name(ids, "`id`"),
            label=label,
            more_labels=labels[1:],
            **{
                key: None if document.get(key) is None else _name(document[key], f"`{key}`")
                for key in ("weight", "group")
            },
            base_margin=_names(document.get("base_margin"), "`base_margin`"),
            format=keys.format({column.name: form for column, form in described}),
        )
        check_words(schema)
        if label is None and (of_label := sorted(keys.model_fields_set - {"reader"})):
            raise ConfigError(f"{', '.join(of_label)}: the schema names no `label`")
        left_out = tuple(_name(name, "`ignore`") for name in ignore)
        for key, names in (
            ("columns", schema.names),
            ("id", schema.id_columns),
            *((what.replace(" ", "_"), (name,)) for what, name in schema.of_training),
        ):
            if both := sorted({name for name in names if name in left_out}):
                raise ConfigError(f"{', '.join(both)} stand under `{key}` and under `ignore`; name each once")
    return schema, left_out


def check_schema_of_run(run: PartyRun) -> None:
    """Refuse to resume a run on divided rows by another schema: answers, their noise and trees are in its cells.

    Raises
    ------
    ConfigError, RunFolderError
    """
    kept, now = run.run_folder / KEPT_SCHEMA, run.table_schema
    if run.role in HORIZONTAL_ROLES and kept.exists() and read_schema(kept) != read_schema(now):
        raise RunFolderError(
            f"{kept.parent} holds the beginning of a run by another schema than {now}; bring it back or choose another "
            "run_id. Nothing was sent"
        )


def check_schema_of_model(schema: TableSchema, folder: Path, ensemble: Ensemble) -> None:
    """Refuse a schema that lacks one of a model's own columns, or reads its cells or labels otherwise than in training.

    Raises
    ------
    ConfigError
    """
    needed = {feature.name for feature in ensemble.features if feature.owner is None}
    if absent := sorted(needed - {*schema.names, *schema.base_margin}):
        raise ConfigError(
            f"the model needs column {', '.join(absent)}, which the schema does not describe. Nothing was sent"
        )
    _check_labels(schema, folder)
    check_numbers_of_categories(schema, folder, needed)
    check_units_of_times(schema, folder, needed)
    kept = kept_schema(folder)
    before = {column.name: column for column in (kept.columns if kept else ()) if column.name in needed}
    for column in (column for column in schema.columns if column.name in before):
        earlier = before[column.name]
        if Missing.REFUSE not in (column.missing, earlier.missing) and _of_empty(column) != _of_empty(earlier):
            raise _other_than_kept(column.name, "another `missing` or `fill`", folder)


def _check_labels(schema: TableSchema, folder: Path) -> None:
    """Refuse labels of other columns, or in another order, than in training, and words of theirs that mean another."""
    kept = kept_schema(folder)
    if kept is None or kept.label is None or schema.label is None:
        return
    if kept.labels != schema.labels:
        before, now = (", ".join(one.labels) for one in (kept, schema))
        raise ConfigError(
            f"`label` is {now}, and was {before} in {folder / KEPT_SCHEMA}, by which the model was trained; bring that "
            "back. A column that means the same needs its earlier name, in the data file too. Nothing was sent"
        )
    if kept.format.label_words != schema.format.label_words:
        before, now = (" and ".join(map(shown, one.format.label_words)) for one in (kept, schema))
        raise ConfigError(
            f"{LABEL_TERM} are {now}, and were {before} in {folder / KEPT_SCHEMA}, by which the model was trained; "
            "bring that back. Nothing was sent"
        )


def check_units_of_times(schema: TableSchema, folder: Path, names: Collection[str]) -> None:
    """Refuse a schema that reads times in some columns in another unit than in training.

    Raises
    ------
    ConfigError
    """
    if (kept := kept_schema(folder)) is None:
        return
    for name in sorted({*names} & {*schema.names} & {*kept.names}):
        if schema.format.of(name).unit_s != kept.format.of(name).unit_s:
            raise _other_than_kept(name, "another `unit`", folder)


def _other_than_kept(name: str, what: str, folder: Path) -> ConfigError:
    return ConfigError(
        f"column {name!r} has {what} than in {folder / KEPT_SCHEMA}, by which the model was trained; bring that back. "
        "Nothing was sent"
    )


def _of_empty(column: ColumnSchema) -> tuple[Missing, float | None]:
    """Treatment of a column's empty cells, and the value that fills them."""
    return column.missing, None if column.fill is None else column.fill_value


def check_numbers_of_categories(schema: TableSchema, folder: Path, names: Collection[str]) -> None:
    """Refuse a schema that numbers the categories of some own columns otherwise than in training.

    Raises
    ------
    ConfigError
    """
    now = {column.name: column for column in schema.columns if column.name in names}
    kept = kept_schema(folder)
    for column in (column for column in (kept.columns if kept else ()) if column.name in now):
        current = now[column.name]
        if current.kind is not column.kind or current.categories[: len(column.categories)] != column.categories:
            raise _other_than_kept(column.name, "another kind, or other categories or another order of them,", folder)


def fills_of(schema: TableSchema) -> dict[str, float]:
    """The numbers that empty cells of imputed columns are read as."""
    return {column.name: column.fill_value for column in schema.columns if column.fill is not None}


def kept_schema(folder: Path) -> TableSchema | None:
    """The schema of the training, which lies beside its model; None of models without one."""
    kept = folder / KEPT_SCHEMA
    return read_schema(kept)[0] if kept.exists() else None


def _names(value: object, what: str) -> tuple[str, ...]:
    """No name, one, or a list of them."""
    return tuple(_name(item, what) for item in (value if isinstance(value, list) else [value]) if value is not None)


def _name(value: object, what: str) -> str:
    """A column's name, which may be a number; YAML reads ``yes`` and ``no`` as truth values."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ConfigError(f"{what} reads as {shown(value)}; put words like yes and no in quotes")
    return str(value)

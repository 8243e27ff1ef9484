"""Row project: the folder of a coordinator, of a worker, or of an owner in a chain, with keys, schema and run file."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from parties.config.addresses import host_and_port
from parties.config.chain import MAX_OWNERS, OtherOwner, OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_schema, read_section
from parties.config.record_runs import RecordRun, recipe_of
from parties.config.section import Section
from parties.config.training_section import TaskSection
from parties.errors import ConfigError
from parties.horizontal.row_table import check_row_schema
from parties.onboarding.dialect import read_raw
from parties.onboarding.party_folder import (
    RUN,
    SCHEMA,
    Made,
    check_free,
    check_path,
    common_keys,
    named_key,
    seen_from,
    write_folder,
)
from parties.onboarding.schema_draft import Bound, Hints, draft_schema
from parties.onboarding.schema_text import Draft
from parties.tables.data_files import named, reporting_faults
from parties.tables.record_ids import read_ids, rows_to_keep
from protocols.secure_aggregation.epochs import MAX_WORKERS

_KINDS: dict[str, type[RecordRun]] = {"coordinator": CoordinatorRun, "worker": WorkerRun, "owner": OwnerRun}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """A party's part in training on rows that are divided between owners.

    Attributes
    ----------
    role : {"coordinator", "worker", "owner"}
    party : str
    folder : Path
    owners : mapping of str to str or None
        All who hold rows; in a chain in the order of their turns, all but the last with the address where they listen.
    epsilon, delta : float
        Budget per record; in a chain without delta.
    records : int
        About how many all workers have together; without a meaning in a chain.
    classes : int or None
        Number of classes of the label, if more than two.
    coordinator, address : str
        Of a worker: the coordinator's name. Where the coordinator listens, or is reached by a worker.
    run_id : str
    """

    role: Literal["coordinator", "worker", "owner"]
    party: str
    folder: Path
    owners: Mapping[str, str | None]
    epsilon: float
    delta: float = 0.0
    records: int = 0
    classes: int | None = None
    coordinator: str = ""
    address: str = ""
    run_id: str = "first"

    def __post_init__(self) -> None:
        most = MAX_OWNERS if self.role == "owner" else MAX_WORKERS
        if not 2 <= len(self.owners) <= most:
            raise _refused(f"--owners takes 2 to {most} names; found {len(self.owners)}")
        for name, address in self.owners.items():
            _check("--owners", OtherOwner, {"name": name, "connect": address})
        if (self.party in self.owners) is (self.role == "coordinator"):
            where = "must not be" if self.role == "coordinator" else "must be"
            raise _refused(f"--name {where} one of --owners, {named(self.owners)}; found {self.party!r}")
        if self.coordinator in self.owners:
            raise _refused(f"--peer names the coordinator, which is none of --owners; found {self.coordinator!r}")
        if self.role != "owner" and any(self.owners.values()):
            raise _refused("--owners takes names alone here: all workers connect to the coordinator")
        if self.role == "owner" and self.classes is not None:
            raise _refused("--classes: a chain trains on two classes or on numbers; several classes need a coordinator")
        listening = [address is not None for address in self.owners.values()]
        if self.role == "owner" and listening != [True] * (len(listening) - 1) + [False]:
            raise _refused(
                "--owners gives the address where an owner listens for all but the last, as in "
                "north=tcp://HOST:5557,south: of two owners the later one connects to the earlier one"
            )

    @property
    def others(self) -> tuple[str, ...]:
        """Everybody with whom public keys are exchanged."""
        others = tuple(name for name in self.owners if name != self.party)
        return (self.coordinator, *others) if self.role == "worker" else others


@dataclass(frozen=True, slots=True)
class _Description:
    """Description of the columns: the text of a schema file, and the kind of label.

    `text` is None if the file lies in the folder; `draft` is None of an agreed schema.
    """

    label: str
    text: str | None
    has_words: bool
    has_numbers: bool = False
    draft: Draft | None = None


def make_row_party(part: RowPart, hints: Hints, *, data: Path | None = None, agreed: Path | None = None) -> Made:
    """Make the folder of a party; files that exist are never replaced.

    Parameters
    ----------
    part : RowPart
    hints : Hints
        Bounds of a numeric label stand under its `bounds`. The rest is about `data`, and goes without `agreed`.
    data : Path, optional
        Of a worker or an owner.
    agreed : Path, optional
        Schema file that all agreed on; by default a schema is drafted from the data.

    Raises
    ------
    ConfigError, TableError, KeyFileError
    """
    folder, kind = part.folder, _KINDS[part.role]
    given: dict[str, Any] = {**common_keys(part.role, part.party, part.run_id), **_connections(part)}
    if data is not None:
        check_path(data, folder)
        given["data"] = seen_from(folder, data)
    if agreed is None:
        assert data is not None
        known = _drafted(data, hints)
    else:
        known = _agreed(agreed, data, folder, hints)
    given["training"] = _training(part) | _objective(part, known, hints.bounds.get(known.label))
    run = read_section(kind, given)
    if agreed is not None:
        recipe_of(run, read_schema(agreed)[0], agreed)
    for name in (RUN,) if known.text is None else (SCHEMA, RUN):
        check_free(folder / name)
    files, public = write_folder(folder, kind, given, known.text)
    return Made(files, public) if known.draft is None else Made.by(known.draft, files, public)


def coordinator_keys(owners: Collection[str], address: str) -> dict[str, Any]:
    """The connections of a coordinator in its run file."""
    return {"listen": address, "workers": [named_key(name) for name in owners]}


def worker_keys(party: str, owners: Collection[str], coordinator: str, address: str) -> dict[str, Any]:
    """The connections of a worker in its run file."""
    peers = [named_key(name) for name in owners if name != party]
    return {"connect": address, "coordinator": named_key(coordinator), "peers": peers}


def owner_keys(party: str, owners: Mapping[str, str | None]) -> dict[str, Any]:
    """The connections of an owner in a chain in its run file: it connects to those before it, and those after it here.

    Parameters
    ----------
    party : str
    owners : mapping of str to str or None
        As in `RowPart`.
    """
    order, own = list(owners), owners[party]
    before: list[dict[str, Any]] = [
        {**named_key(name), "connect": owners[name]} for name in order[: order.index(party)]
    ]
    after = [named_key(name) for name in order[order.index(party) + 1 :]]
    return {"owners": before + after} | ({} if own is None else {"listen": _listening(own)})


def training_of_workers(n_workers: int, *, epsilon: float, delta: float, records: int) -> dict[str, Any]:
    """The `training` section of a coordinator and its workers, of which the least majority suffices for a sum."""
    threshold = n_workers // 2 + 1
    return {
        "recipe": "recommended",
        "epsilon": epsilon,
        "delta": delta,
        "workers": n_workers,
        "threshold": threshold,
        "noise": "workers",
        "honest": threshold,
        "recommended": {"records": records},
    }


def _connections(part: RowPart) -> dict[str, Any]:
    match part.role:
        case "coordinator":
            return coordinator_keys(part.owners, part.address)
        case "worker":
            return worker_keys(part.party, part.owners, part.coordinator, part.address)
        case "owner":
            return owner_keys(part.party, part.owners)


def _training(part: RowPart) -> dict[str, Any]:
    if part.role == "owner":
        return {"epsilon": part.epsilon, "order": list(part.owners)}
    return training_of_workers(len(part.owners), epsilon=part.epsilon, delta=part.delta, records=part.records)


def _listening(address: str) -> str:
    """Where an owner listens that others reach at an address: at all interfaces of a host that has a name.

    ZeroMQ listens at numbers alone, and at localhost.
    """
    host, port = host_and_port(address.removeprefix("tcp://"))
    try:
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return f"tcp://0.0.0.0:{port}"
    return address


def _drafted(data: Path, hints: Hints) -> _Description:
    """A schema that is drafted from the data, in which no id may come twice."""
    raw = read_raw(data)
    draft = draft_schema(raw, data, replace(hints, is_among_owners=True))
    assert draft.label is not None
    rows_to_keep(read_ids(raw.frame, [draft.id], data), "refuse", [draft.id], data)
    return _Description(
        draft.label, draft.text(), "positive" in draft.keys, draft.objective == "reg:squarederror", draft
    )


def _agreed(path: Path, data: Path | None, folder: Path, hints: Hints) -> _Description:
    """An agreed schema, which a run would take; the data file must be there."""
    schema, _ = read_schema(path)
    check_row_schema(schema)
    assert schema.label is not None
    if others := sorted(set(hints.bounds) - {schema.label}):
        raise _refused(f"--bounds: {named(others)} is not the label of {path}, which has the bounds of its columns")
    if data is not None:
        with reporting_faults(data):
            data.open("rb").close()
    is_there = os.path.realpath(path) == os.path.realpath(folder / SCHEMA)
    text = None if is_there else path.read_text(encoding="utf-8")
    return _Description(schema.label, text, bool(schema.format.positive))


def _objective(part: RowPart, known: _Description, bounds: tuple[Bound, Bound] | None) -> dict[str, Any]:
    """The keys of `training` about the label; its bounds and the number of its classes are public, and never found."""
    if (bounds is not None) + (part.classes is not None) + known.has_words > 1:
        raise _refused(
            f"label {known.label!r} is one thing: two classes, which `positive` tells apart, several (--classes), or a "
            f"number (--bounds {known.label}=LOWER:UPPER)"
        )
    if part.classes is not None:
        return {"objective": "multi:softprob", "classes": part.classes}
    if bounds is not None:
        given = {"objective": "reg:squarederror", "label_bounds": list(bounds)}
        _check(f"--bounds {known.label}", TaskSection, {**given, "epsilon": part.epsilon})
        return given
    if known.has_numbers:
        raise _refused(
            f"label {known.label!r} holds other numbers than 0 and 1: give their public bounds by --bounds "
            f"{known.label}=LOWER:UPPER, or name one of two classes by --positive; several classes, numbered from 0, "
            "need a coordinator, and --classes at everybody's"
        )
    return {"objective": "binary:logistic"}


def _check(option: str, kind: type[Section], settings: dict[str, Any]) -> None:
    """Check settings that an option gives, which is named where they are refused."""
    try:
        read_section(kind, settings)
    except ConfigError as error:
        raise _refused(f"{option}: {error}") from None


def _refused(sentence: str) -> ConfigError:
    return ConfigError(f"{sentence}. Nothing was made")

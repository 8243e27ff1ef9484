"""Project: a party's folder with keys, schema and run file, or both parties' for a rehearsal on one machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from parties.config.reading import read_section
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError
from parties.onboarding.dialect import RawTable, read_raw
from parties.onboarding.party_folder import (
    RUN,
    SCHEMA,
    Made,
    all_or_nothing,
    check_free,
    check_path,
    common_keys,
    named_key,
    seen_from,
    write_folder,
)
from parties.onboarding.run_draft import DESENSITIZE
from parties.onboarding.schema_draft import Hints, draft_schema, texts_of
from parties.onboarding.schema_text import Draft
from parties.storage.atomic_files import copy, write_text
from parties.tables.data_files import named
from parties.tables.record_ids import read_ids
from parties.tables.sorted_ids import Duplicates

# Share of the active party's records that a rehearsal keeps for prediction, and the seed by which they are chosen.
HELD_OUT, SEED_OF_SHARE = 0.2, 7
TRAIN_IDS, TEST_IDS = "train_ids.txt", "test_ids.txt"

# Ways in which the same ids are written in two files.
_FORMS: dict[str, Callable[[str], str]] = {
    "zeros in front": lambda text: text.lstrip("0"),
    "capitals": str.casefold,
    "marks and spaces": lambda text: re.sub(r"[\W_]", "", text),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A party's part in a run.

    Its role, name and folder, its peer, the address between them, the name of the run; and what the `model` section of
    an active party says in place of its defaults.
    """

    role: Literal["active", "passive"]
    party: str
    peer: str
    folder: Path
    address: str
    run_id: str = "first"
    model: Mapping[str, Any] = field(default_factory=dict)


def write_schema(data: Path, target: Path, hints: Hints) -> Draft:
    """Write a schema draft.

    Raises
    ------
    ConfigError, TableError
        Also if the target exists.
    """
    check_free(target)
    draft = draft_schema(read_raw(data), data, hints)
    write_text(target, draft.text())
    return draft


def make_party(data: Path, part: Part, hints: Hints) -> Made:
    """Make a party's keys, schema and run file in its folder; files that exist are never replaced.

    Raises
    ------
    ConfigError, TableError, KeyFileError
    """
    _check(part, hints)
    check_path(data, part.folder)
    raw = read_raw(data)
    draft = draft_schema(raw, data, hints)
    ids = read_ids(raw.frame, [draft.id], data)
    return _make(draft, raw, ids, data, part, duplicates="first" if ids.has_duplicates else "refuse")


def make_project(
    active: Path, passive: Path, folder: Path, hints: Hints, model: Mapping[str, Any] | None = None
) -> dict[str, Made]:
    """Make both parties' folders on one machine, with each other's public keys; returns what was made, by party.

    Some records of the active party are kept for prediction.

    Raises
    ------
    ConfigError, TableError, KeyFileError
    """
    names = [path.name.split(".")[0] for path in (active, passive)]
    for path, name in zip((active, passive), names, strict=True):
        check_path(path, folder / name)
    if names[0] == names[1]:
        raise ConfigError(f"both data files are called {names[0]!r}, which names the parties. Nothing was made")
    raws = [read_raw(path) for path in (active, passive)]
    if unknown := sorted(set(hints.bounds) - {name for raw in raws for name in raw.frame.columns}):
        raise ConfigError(f"neither file has a column {named(unknown)}, for which bounds are given. Nothing was made")
    of_party = (
        _hints_of(raws[0], raws[1], hints),
        replace(_hints_of(raws[1], raws[0], hints), label=None, positive=None),
    )
    address = f"tcp://127.0.0.1:{free_port()}"
    first = Part(
        role="active", party=names[0], peer=names[1], folder=folder / names[0], address=address, model=model or {}
    )
    second = Part(role="passive", party=names[1], peer=names[0], folder=folder / names[1], address=address)
    for part, party_hints in zip((first, second), of_party, strict=True):
        _check(part, party_hints)
        for key in (f"{part.party}.secret", f"{part.party}.public", f"{part.peer}.public"):
            check_free(part.folder / "keys" / key)
    for name in (TRAIN_IDS, TEST_IDS):
        check_free(first.folder / name)
    drafts = [draft_schema(*each) for each in zip(raws, (active, passive), of_party, strict=True)]
    ids = [
        read_ids(raw.frame, [draft.id], path) for raw, draft, path in zip(raws, drafts, (active, passive), strict=True)
    ]
    _check_common(ids, names)
    # Both sides must agree on it.
    repeated: Duplicates = "first" if any(party_folder.has_duplicates for party_folder in ids) else "refuse"
    with all_or_nothing(first.folder, second.folder) as files:
        made = list[Made]()
        for number, (path, part, share) in enumerate([(active, first, HELD_OUT), (passive, second, 0)]):
            party_folder = _make(
                drafts[number], raws[number], ids[number], path, part, duplicates=repeated, held_out=share
            )
            files += party_folder.files
            made.append(party_folder)
        for party_folder, peer in zip(made, (second, first), strict=True):
            check_free(target := peer.folder / "keys" / party_folder.to_send.name)
            files.append(target)
            copy(party_folder.to_send, target)
    return dict(zip(names, made, strict=True))


def _hints_of(raw: RawTable, other: RawTable, hints: Hints) -> Hints:
    """The hints that are about a file, beside the other party's."""
    own_names, other_names = (tuple(map(str, table.frame.columns)) for table in (raw, other))
    return replace(
        hints,
        id=hints.id if hints.id in own_names or hints.id not in other_names else None,
        bounds={name: pair for name, pair in hints.bounds.items() if name in own_names},
        beside=frozenset(name.casefold() for name in other_names),
    )


def _check_common(ids: Sequence[pd.Index], names: Sequence[str]) -> None:
    """Refuse two files without a common id, and say so if it is for the way in which ids are written."""
    known = set(ids[0])
    if known.intersection(ids[1]):
        return
    cure = "name the record key with --id"
    for what, form in _FORMS.items():
        if set(map(form, known)).intersection(map(form, ids[1])):
            cure = f"but for {what} they have some in common. Write ids in one form in both files"
            break
    raise ConfigError(f"{names[0]} and {names[1]} have no id in common; {cure}. Nothing was made")


def _check(part: Part, hints: Hints) -> None:
    if (part.role == "active") != (hints.label is not None):
        raise ConfigError("an active party names its label with --label, a passive party has none. Nothing was made")
    for name in (SCHEMA, RUN):
        check_free(part.folder / name)


def _make(
    draft: Draft, raw: RawTable, ids: pd.Index, data: Path, part: Part, *, duplicates: Duplicates, held_out: float = 0
) -> Made:
    align: dict[str, str] = {} if duplicates == "refuse" else {"duplicates": duplicates}
    is_active, folder, kind = part.role == "active", part.folder, ActiveRun if part.role == "active" else PassiveRun
    peer = named_key(part.peer)
    given: dict[str, Any] = {
        **common_keys(part.role, part.party, part.run_id),
        "data": seen_from(folder, data),
        "answers": "cells",
    }
    if is_active:
        model = {"objective": draft.objective, **part.model}
        given |= {"listen": part.address, "passive": [peer], "model": model}
    else:
        given |= {"connect": part.address, "active": peer, "desensitize": DESENSITIZE}
    if held_out:
        given["ids"] = TRAIN_IDS
        align |= {"method": "psi"}
    if align:
        given["align"] = align
    read_section(kind, given)
    with all_or_nothing(folder) as made:
        files, public = write_folder(folder, kind, given, draft.text())
        made += files
        if held_out:
            # A run reads the first row of an id that is repeated, and no other.
            is_labelled = texts_of(raw.frame[draft.label], raw.format).notna() & ~ids.duplicated()
            for path, text in _id_lists(ids[is_labelled], folder, held_out):
                check_free(path)
                made.append(path)
                write_text(path, text)
    return Made.by(draft, tuple(made), public, has_repeats=ids.has_duplicates)


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _id_lists(ids: pd.Index, folder: Path, share: float) -> Iterator[tuple[Path, str]]:
    """Files of the ids to train on and of those to predict, chosen at random."""
    order = np.random.default_rng(SEED_OF_SHARE).permutation(len(ids))
    n_test = round(share * len(ids))
    paths = [folder / TRAIN_IDS, folder / TEST_IDS]
    for path, rows in zip(paths, (order[n_test:], order[:n_test]), strict=True):
        yield path, "\n".join(sorted(ids[rows])) + "\n"

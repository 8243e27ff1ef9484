"""The lines of the ledger: what was released, to whom, at what cost, when; and how each seals those before it.

::

    opened    the ledger's own name
    charge    a column is about to be drawn: this is what it costs
    cells     that column's mechanism publishes of each value the cell it lies in: so many bits, exactly
    stored    what was drawn for that charge of these records is stored, with this content
    released  the records of a release for training, where some of it was drawn before
    held_out  records that a run held out, and answered exactly if it was allowed to
    reuse     it was needed again and taken from the store: costs nothing
    tests     the peer learnt these thresholds of released columns: costs nothing, is counted
    grid      a column's cuts for good: the peer learns in which cell between them a record lies, however often it asks
    migrated  the store of an earlier version was taken over
    run       an owner of rows takes part in a run: this is what the run promises, and costs (`model_ledger`)
    turn      its tree of a turn of such a run, a chain, is about to be drawn after these trees: costs nothing more

A line's digest covers the digest before it and all fields of the line as canonical JSON, so that no line can be
changed, dropped or moved without every later digest becoming wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from pydantic import JsonValue

from parties.ledger.costs import Cells, Charge, Cost, Spent, Unit
from parties.tables.key_sets import HALF_NAME, NAME, KeySet, Names, windows

Fields = dict[str, Any]

ResolvedTest = tuple[str, int | None, float | None, bool]
"""Family of a released column, category of an indicator, threshold unless the test asks for presence, and answer."""

GridKey = tuple[str, str, int | None, int]
"""A column, a digest of its description and mapped domain, category of an indicator, and cells that were wanted."""

# What the digest of a set of records begins with: half names are those of an earlier version.
_SET_MARKS = {NAME: b"names\n", HALF_NAME: b""}

# What the digest of the first line covers in place of an earlier digest.
BEGINNING = "opboost-ledger 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Why something is released: which run and task, and who gets it."""

    run_id: str
    task: str
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedColumn:
    """One column's release as it is charged: digests of its schema and mechanism, and its cost.

    Attributes
    ----------
    schema, mechanism : str
        Digests of the column's description and of its mechanism.
    terms : dict
        The mechanism in words and numbers, for the reader of the ledger.
    cost : Cost
    """

    schema: str
    mechanism: str
    terms: dict[str, JsonValue]
    cost: Cost

    @property
    def family(self) -> str:
        """Digest that all releases of one column under one mechanism share, whatever their records."""
        return digest_of([self.cost.column, self.schema, self.mechanism])


@dataclass(frozen=True, slots=True)
class Reuse:
    """Reuse of earlier draws: the charges that paid for them, and the number of records that use them again."""

    charges: tuple[int, ...]
    n_records: int


def charge_fields(release: ChargedColumn, charge: Charge, occasion: Occasion) -> Fields:
    """The line of a charge; its epsilon is the loss over `points` of the release's own domain, which are one `unit`."""
    return {
        "kind": "charge",
        **_when_and_why(occasion),
        "column": release.cost.column,
        "schema": release.schema,
        "mechanism": release.mechanism,
        "family": release.family,
        "terms": release.terms,
        "epsilon": plain(charge.spent.epsilon),
        "category_epsilon": plain(charge.spent.category_epsilon),
        "unit": charge.unit.size if charge.unit is not None else 0.0,
        "unit_words": charge.unit.words if charge.unit is not None else "",
        "points": charge.points,
        "records": records_digest(charge.records),
        "n_records": len(charge.records),
    }


def cells_fields(column: str, cells: Cells, charge: Fields, occasion: Occasion) -> Fields:
    """The line of the cells that a Local-Map publishes, of the records of the line of its charge."""
    return {
        "kind": "cells",
        **_when_and_why(occasion),
        "column": column,
        "n_cells": cells.number,
        "narrowest": cells.narrowest,
        "bits": cells.bits,
        "records": charge["records"],
        "n_records": charge["n_records"],
    }


def stored_fields(charge: int, names: str, content: str) -> Fields:
    """The line that says what was drawn at a charge for a set of records, by its digest."""
    return {"kind": "stored", "at": _now(), "charge": charge, "names": names, "content": content}


def tests_fields(tests: Sequence[ResolvedTest], occasion: Occasion) -> Fields:
    """The line of thresholds that are about to be resolved."""
    return {"kind": "tests", **_when_and_why(occasion), "tests": [list(test) for test in tests]}


def grid_fields(grid: GridKey, thresholds: Sequence[float], occasion: Occasion) -> Fields:
    """The line of the cuts of a column, which hold for all runs."""
    column, described, category, n_cells = grid
    which = {"column": column, "described": described, "category": category, "n_cells": n_cells}
    return {"kind": "grid", **_when_and_why(occasion), **which, "thresholds": list(thresholds)}


def grid_key(line: Mapping[str, Any]) -> GridKey:
    """What a line of kind ``grid`` is about."""
    return line["column"], line["described"], line["category"], line["n_cells"]


def migrated_fields(n_taken: int, lost: Sequence[int]) -> Fields:
    """The line of a store that was taken over, with the charges whose draws were not."""
    return {"kind": "migrated", "at": _now(), "n_taken": n_taken, "lost": list(lost)}


def reuse_fields(column: str, reuse: Reuse, occasion: Occasion) -> Fields:
    """The line of a release that was needed again."""
    return {
        "kind": "reuse",
        **_when_and_why(occasion),
        "column": column,
        "charges": list(reuse.charges),
        "n_records": reuse.n_records,
        "epsilon": 0.0,
        "category_epsilon": 0.0,
    }


def records_fields(kind: str, records: KeySet, occasion: Occasion) -> Fields:
    """The line of the records of a release, of kind ``released``, or of those that a run held out."""
    return {"kind": kind, **_when_and_why(occasion), "records": records_digest(records), "n_records": len(records)}


def run_fields(
    *,
    run: str,
    coordinator: str,
    epsilon: float,
    delta: float,
    at: str | None = None,
    holder: str = "",
    continues: str = "",
    continued_holder: str = "",
) -> Fields:
    """The line of a horizontal run; `at` is when it was charged, by default now."""
    costs = {"epsilon": plain(epsilon), "delta": plain(delta)}
    whose = {
        "run": run,
        "coordinator": coordinator,
        "holder": holder,
        **({"continues": continues, "continued_holder": continued_holder} if continues else {}),
    }
    return {"kind": "run", "at": at or _now(), **whose, **costs}


def turn_fields(*, run: str, coordinator: str, turn: int, trees: str) -> Fields:
    """The line of an owner's turn in a chain; `trees` is a digest of the trees before it."""
    return {"kind": "turn", "at": _now(), "run": run, "coordinator": coordinator, "turn": turn, "trees": trees}


def opened_fields(name: str) -> Fields:
    """The first line."""
    return {"kind": "opened", "at": _now(), "name": name}


def charged(line: Mapping[str, Any], records: KeySet) -> Charge:
    """What a line of kind ``charge`` or ``cells`` cost."""
    if line["kind"] == "cells":
        return Charge(column=line["column"], spent=Spent(cell_bits=float(line["bits"])), unit=None, records=records)
    words = line.get("unit_words", f"{line['unit']:.6g} original units, one point of the mapped domain")
    return Charge(
        column=line["column"],
        spent=Spent(float(line["epsilon"]), float(line["category_epsilon"]), _bits_before(line)),
        unit=Unit(line["unit"], words) if line["unit"] else None,
        points=line.get("points", 1),
        records=records,
    )


def _bits_before(line: Mapping[str, Any]) -> float:
    """Bits of the cells that a charge's release published, where they have no line: versions before wrote none."""
    if "points" in line or line["terms"].get("mechanism") != "local":
        return 0.0
    return math.log2(math.ceil(line["terms"]["domain_size"] / line["terms"]["theta"]))


def family_of(line: Fields) -> str:
    """`Release.family` of a line that charges, also where an earlier version wrote it."""
    terms = {name: value for name, value in line["terms"].items() if name != "changed_values"}
    return digest_of([line["column"], line["schema"], digest_of(terms)])


def canonical(document: JsonValue) -> str:
    """JSON of which there is one for every document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(document: Any) -> str:
    """SHA-256 of a document of plain values."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def seal(before: str, text: str) -> str:
    """The digest of a line, given as canonical JSON, after a line with the digest `before`."""
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def records_digest(records: KeySet) -> str:
    """A name for a set of records; of half names it is that of an earlier version."""
    digest = hashlib.sha256(_SET_MARKS[records.dtype])
    for window in windows(records):
        digest.update(packed(window))
    return digest.hexdigest()


def packed(records: Names) -> memoryview:
    """Names of records as bytes, which are not copied."""
    return memoryview(np.ascontiguousarray(records).view(np.uint8))


def _when_and_why(occasion: Occasion) -> Fields:
    return {"at": _now(), "run_id": occasion.run_id, "task": occasion.task, "peer": occasion.peer}


def plain(number: float) -> float | str:
    """A number as JSON has it."""
    return "inf" if math.isinf(number) else float(number)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

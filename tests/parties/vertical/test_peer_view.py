"""What a peer reads depends on cells and labels through a release and the split tests alone.

For small tables this is enumerated: the real jobs of both parties run over a channel in memory, once per table and per
set of ids that the other side brings, with noise and random orders that are the same in every run. Whatever the peer
received, decoded, must then be the same bytes for all tables. Keys, and what is blinded by them, are left out.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism, ReleasedColumn, exact
from opboost.preprocess import EncodedColumn
from parties.errors import TableError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.ledger import due_cells
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.session import termination
from parties.tables.blocks import record_set
from parties.tables.party_table import PartyTable
from parties.vertical import alignment
from parties.vertical import preparation as preparing
from protocols.messages.id_alignment import (
    BlindedIds,
    CommonIds,
    HiddenIds,
    IdConfirmation,
    OrderShare,
    ReblindedIds,
    TransferAnswer,
    TransferPoints,
)
from protocols.messages.message import Message
from protocols.messages.prediction import Answers
from protocols.messages.vertical import Hello, SplitRanks
from protocols.transport.keys import generate_shared
from tests.support.memory_wire import MemoryWire

View = tuple[Any, ...]

SILENT = Terminal()

# How many kinds of cells are enumerated.
N_CELLS = int(os.environ.get("OPBOOST_CELLS", "3"))


def public(message: Message) -> tuple[Any, ...]:
    """A message as it must be the same in every run: without what fresh keys made of the ids."""
    fields = {name: plain(getattr(message, name)) for name in type(message).model_fields}
    match message:
        case Hello():
            fields["id_point"] = message.id_point is not None
        case OrderShare() | IdConfirmation() | TransferAnswer():
            fields = {}
        case BlindedIds() | ReblindedIds() | TransferPoints():
            fields["rows"] = message.rows.shape
        case HiddenIds():
            fields |= {"columns": message.columns.shape, "tags": message.tags.shape}
        case CommonIds():
            fields["bits"] = int(np.unpackbits(message.bits).sum())
    return message.kind, tuple(fields.items())


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value.model_dump_json() if isinstance(value, Message) else repr(value)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> MemoryWire:
    """Makes channels; from here on noise and orders are the same in every run, whatever the cells."""

    def drawn(mechanism: ColumnMechanism, encoded: EncodedColumn, *, rng: Any) -> ReleasedColumn:
        fixed = np.random.default_rng(len(encoded.codes))
        highest = len(mechanism.schema.categories) or mechanism.settings.domain.hi
        codes = fixed.integers(0, highest, len(encoded.codes))
        is_missing = fixed.random(len(codes)) < 0.3 * (mechanism.missingness is not None)
        return ReleasedColumn(mechanism.schema, np.where(is_missing, 0, codes), is_missing)

    monkeypatch.setattr(due_cells, "desensitize", drawn)
    monkeypatch.setattr(alignment, "_own_share", lambda path: bytes(32))
    return MemoryWire(monkeypatch)


class Runs:
    """Runs of the same parties on changing tables, each in a folder of its own."""

    def __init__(self, sites: Any, wire: MemoryWire, *, method: str = "psi-dh") -> None:
        self.bank, self.shop, self.wire = sites.bank, sites.shop, wire
        self.passive = [sites.shop]
        self.n_runs = sum(1 for _ in sites.bank.path.glob("runs/*"))
        self.method = method
        for site in (self.bank, self.shop):
            site.run["align"] = {"method": method}
            if method == "hashed":
                site.run["align"]["secret"] = "keys/both.shared"
                (site.path / "keys" / "both.shared").unlink(missing_ok=True)
        if method == "hashed":
            generate_shared(self.bank.path / "keys", "both")
            shutil.copy(self.bank.path / "keys" / "both.shared", self.shop.path / "keys")
        self.bank.run["model"] = {"n_estimators": 2, "max_depth": 2, "min_child_weight": 0, "seed": 1}
        self.shop.run["desensitize"] = {"epsilon": 0.5, "domain_size": 5}
        self.bank.schema["columns"] = {"age": {"lower": 0, "upper": 2}}
        self.bank.table = pd.DataFrame({"id": list("12xy"), "age": [0, 1, 0, 1], "y": [0, 1, 0, 1]})

    def add(self, site: Any) -> None:
        """One more passive party, which knows all records."""
        self.passive.append(site)
        self.bank.run["passive"] = [*self.bank.run["passive"], {"name": site.party}]
        site.run |= {"align": {"method": self.method}, "desensitize": self.shop.run["desensitize"]}
        site.schema = {"id": "id", "columns": {"parcels": NUMBER}}
        site.table = pd.DataFrame({"id": list("1278xy"), "parcels": [0, 1, 2, 0, 1, 2]})

    def bring(self, ids: str) -> None:
        """Where records are listed, list these."""
        if self.method == "prealigned":
            for site in (self.bank, *self.passive):
                (site.path / "ids.txt").write_text("\n".join(ids))
                site.run["ids"] = "ids.txt"

    def train(self) -> dict[str, Any]:
        """What all parties' training jobs return or raise."""
        self.n_runs += 1
        sites = [self.bank, *self.passive]
        for site in sites:
            site.run |= {"folder": f"runs/{self.n_runs}"}
        for site in self.passive:
            site.run["ledger"] = {"path": f"runs/{self.n_runs}.ledger.sqlite"}
        calls = {site.party: (train_active if site is self.bank else train_passive, site.write()) for site in sites}
        return self.wire.together(
            {
                name: lambda job=job, path=path: job(path, insecure=False, terminal=SILENT)
                for name, (job, path) in calls.items()
            }
        )

    def ask(self, ids: str, *, mode: str, data: str) -> None:
        """Predict these records on the model of the last training; the shop knows those of another file."""
        listed = self.bank.path / "asked.txt"
        listed.write_text("\n".join(ids))
        out = self.bank.path / "predictions.csv"
        out.unlink(missing_ok=True)
        self.n_runs += 1
        # A ledger of its own: one that knows the records answers as it did, which tells whether a cell has changed.
        self.shop.run["ledger"] = {"path": f"runs/{self.n_runs}.ledger.sqlite"}
        with Ledger(self.shop.path / "runs" / f"{self.n_runs}.ledger.sqlite") as ledger:
            # It knows of the run, whose model would not be answered for otherwise.
            occasion = Occasion(run_id=self.shop.run["run_id"], task="train", peer="bank")
            ledger.note_released(record_set(pd.Index(["nobody"], dtype=object)), occasion)
        bank, shop = self.bank.write(), self.shop.write()
        source = self.shop.path / data
        self.wire.together(
            {
                "bank": lambda: predict_active(
                    bank, data=None, ids=listed, mode=mode, out=out, insecure=False, terminal=SILENT
                ),
                "shop": lambda: serve_passive(shop, data=source, insecure=False, terminal=SILENT),
            }
        )

    def view(self, party: str, *, without: tuple[type[Message], ...] = (), exact_bits: bool = True) -> View:
        """Everything that a party received in the last run, but for messages of some kinds or the bits of answers."""
        received = self.wire.received.get(party, {})
        messages = [message for sender in sorted(received) for message in received[sender]]
        if not exact_bits:
            are_exact = [isinstance(one, Answers) for one in messages]
            messages = [
                one.model_copy(update={"bits": np.zeros_like(one.bits)}) if is_exact else one
                for one, is_exact in zip(messages, are_exact, strict=True)
            ]
        return tuple((one.kind, ()) if isinstance(one, without) else public(one) for one in messages)


Views = dict[tuple[Any, Any], View]
"""What a peer saw, by the cells of the other side and by what the peer brought."""


def leaks(views: Views) -> list[str]:
    """What a peer can tell of cells: the pairs of tables that two views tell apart.

    A table that is refused is refused whatever the peer brings, and before anything was said.
    """
    found = []
    by_table: dict[Any, dict[Any, View]] = {}
    for (cells, brought), view in views.items():
        by_table.setdefault(cells, {})[brought] = view
    spoken = {cells: per for cells, per in by_table.items() if any(per.values())}
    found += [f"{cells} is refused or not by what is asked" for cells, per in spoken.items() if not all(per.values())]
    (first, *others) = spoken or [None]
    for cells in others:
        found += [
            f"{first} and {cells} for {asked}" for asked, view in spoken[cells].items() if view != spoken[first][asked]
        ]
    return found


NUMBER: dict[str, Any] = {"lower": 0, "upper": 2}
LISTED: dict[str, Any] = {"categories": ["a", "b", "c"]}

# By kind of column: its schema, and cells of every kind that such a column can hold, the most telling ones first.
COLUMNS: dict[str, tuple[dict[str, Any], Sequence[Any]]] = {
    "numbers, all refused": (NUMBER | {"missing": "refuse", "outside": "refuse"}, (0, 2, None, 9, 1, "x")),
    "numbers, moved and missing": (NUMBER | {"missing": "category", "outside": "clip"}, (0, None, 9, 2, -3, "x")),
    "numbers, imputed": (NUMBER | {"missing": "impute", "fill": 1, "outside": "refuse"}, (0, None, 9, 2, 1, "x")),
    "ordered": (LISTED | {"kind": "ordered"}, ("a", "b", "z", None, "c")),
    "ordered, missing": (LISTED | {"kind": "ordered", "missing": "category"}, ("a", None, "z", "b", "c")),
    "unordered": (LISTED | {"kind": "unordered"}, ("a", "b", "z", None, "c")),
    "unordered, missing": (LISTED | {"kind": "unordered", "missing": "category"}, ("a", None, "z", "b", "c")),
}

# The bank's, with labels.
OWN: dict[str, tuple[dict[str, Any], Sequence[tuple[Any, Any]]]] = {
    "numbers, all refused": (NUMBER | {"missing": "refuse"}, ((0, 0), (0, 1), (None, 0), (9, 1), ("x", 0))),
    "numbers, missing": (NUMBER | {"missing": "category"}, ((0, 0), (None, 1), (9, 2), (2, 1), (0, None))),
    "unordered": (LISTED | {"kind": "unordered"}, (("a", 0), ("a", 1), ("z", 0), ("b", 1), (None, 0))),
}

# What the other side brings: one record that is enumerated, or both.
BROUGHT = ("1", "12")


def spent(two: tuple[Any, ...], schema: dict[str, Any]) -> pd.DataFrame:
    """The shop's records: two with these cells, and two that the bank does not know, which differ."""
    low, high = ("a", "b") if "kind" in schema else (0, 2)
    return pd.DataFrame({"id": list("1278"), "spend": pd.Series([*two, low, high], dtype=object)})


def shop_views(runs: Runs, schema: dict[str, Any], cells: Sequence[Any], *, until_leak: bool = False) -> Views:
    """What the bank sees, for all cells of two of the shop's records and all that the bank brings."""
    runs.shop.schema["columns"] = {"spend": schema}
    views = {}
    for two in product(cells[:N_CELLS], repeat=2):
        runs.shop.table = spent(two, schema)
        for ids in BROUGHT:
            known = len(ids)
            runs.bank.table = pd.DataFrame({"id": [*ids, "x"], "age": range(known + 1), "y": [0] * known + [1]})
            runs.bring(ids)
            runs.train()
            # Whether another passive party's greeting comes before the bank leaves is a matter of time.
            views[two, ids] = runs.view("bank") if runs.shop.party in runs.wire.received.get("bank", {}) else ()
        if until_leak and leaks(views):
            break
    return views


def bank_views(
    runs: Runs, schema: dict[str, Any], cells: Sequence[tuple[Any, Any]], *, until_leak: bool = False
) -> Views:
    """What the shop sees, for all cells and labels of two of the bank's records, but for the split tests."""
    runs.bank.schema["columns"], runs.shop.schema["columns"] = {"age": schema}, {"spend": NUMBER}
    low, high = ("a", "b") if "kind" in schema else (0, 2)
    views = {}
    for two in product(cells[:N_CELLS], repeat=2):
        ages, labels = zip(*two, (low, 0), (high, 1), strict=True)
        runs.bank.table = pd.DataFrame({"id": list("12xy"), "age": pd.Series(ages, dtype=object), "y": labels})
        for ids in BROUGHT:
            runs.shop.table = pd.DataFrame({"id": [*ids, "8"], "spend": range(len(ids) + 1)})
            runs.bring(ids)
            runs.train()
            views[two, ids] = runs.view("shop", without=(SplitRanks,))
        if until_leak and leaks(views):
            break
    return views


def n_done(views: Views) -> int:
    """In how many runs the peer heard that all is done; it must be so in all that began."""
    done = [bool(view) and view[-1][0] == "done" for view in views.values()]
    assert done == list(map(bool, views.values()))
    return sum(done)


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_bank_sees_nothing_of_the_shops_cells_but_the_release(sites: Any, wire: MemoryWire, kind: str) -> None:
    views = shop_views(Runs(sites, wire), *COLUMNS[kind])
    assert leaks(views) == []
    assert n_done(views) >= 8


@pytest.mark.parametrize("kind", OWN)
def test_the_shop_sees_nothing_of_the_banks_cells_and_labels_but_the_split_tests(
    sites: Any, wire: MemoryWire, kind: str
) -> None:
    runs = Runs(sites, wire)
    assert leaks(views := bank_views(runs, *OWN[kind])) == []
    assert n_done(views) >= 8


def test_nor_where_records_are_held_out_and_scored(sites: Any, wire: MemoryWire) -> None:
    """Of one common record none can be held out, which is told alike for all cells; of two one is, of one class."""
    runs = Runs(sites, wire)
    held_out = {"validation_fraction": 0.5, "early_stopping_rounds": 1, "eval_metric": ["auc"]}
    runs.bank.run["model"] |= held_out
    views = bank_views(runs, *OWN["numbers, all refused"])
    assert leaks(views) == []
    told = {view[-1] for (_, ids), view in views.items() if view and ids == "1"}
    reason = f"'{termination.NO_REASON}'"
    fields = (("phase", "'checking the common records'"), ("reason", reason), ("outlook", "<Outlook.UNSURE: 'unsure'>"))
    assert told == {("abort", fields)}
    assert n_done({key: view for key, view in views.items() if key[1] == "12"}) >= 4


@pytest.mark.parametrize(
    ("method", "side"),
    [("psi", "shop"), ("psi", "bank"), ("hashed", "shop"), ("prealigned", "shop"), ("prealigned", "bank")],
)
def test_nor_where_records_are_aligned_in_another_way(sites: Any, wire: MemoryWire, method: str, side: str) -> None:
    views_of, cases = {"shop": (shop_views, COLUMNS), "bank": (bank_views, OWN)}[side]
    views = views_of(Runs(sites, wire, method=method), *cases["numbers, all refused"])
    assert leaks(views) == []
    assert n_done(views) >= 8


@pytest.mark.parametrize("side", ["shop", "bank"])
def test_nor_where_two_passive_parties_take_part(sites: Any, wire: MemoryWire, tmp_path: Path, side: str) -> None:
    runs = Runs(sites, wire)
    runs.add(type(sites.shop)(tmp_path, "post", "bank", {**sites.shop.run, "party": "post"}, {}))
    views_of, cases = {"shop": (shop_views, COLUMNS), "bank": (bank_views, OWN)}[side]
    views = views_of(runs, *cases["numbers, all refused"])
    assert leaks(views) == []
    assert n_done(views) >= 8


def answer_views(runs: Runs, mode: str, schema: dict[str, Any], cells: Sequence[Any]) -> Views:
    """What the bank sees when it asks about records of a new file of the shop's; of exact bits, how many there are."""
    runs.shop.schema["columns"] = {"spend": schema}
    runs.bank.table = pd.DataFrame({"id": list("12345678"), "age": [0, 1] * 4, "y": [0, 0, 1, 0, 1, 1, 0, 1]})
    runs.shop.table = pd.concat(
        [spent((cells[0],) * 2, schema), spent((cells[0],) * 2, schema).assign(id=list("3456"))]
    )
    assert not [error for error in runs.train().values() if isinstance(error, Exception)]
    views = {}
    for two in product(cells[:N_CELLS], repeat=2):
        spent(two, schema).to_csv(runs.shop.path / "new.csv", index=False)
        for ids in BROUGHT:
            runs.ask(ids, mode=mode, data="new.csv")
            views[two, ids] = runs.view("bank", exact_bits=mode == "desensitized")
    return views


@pytest.mark.parametrize("mode", ["routed", "desensitized"])
@pytest.mark.parametrize("kind", ["numbers, moved and missing", "unordered"])
def test_answers_show_nothing_but_bits(sites: Any, wire: MemoryWire, mode: str, kind: str) -> None:
    views = answer_views(Runs(sites, wire), mode, *COLUMNS[kind])
    assert leaks(views) == []
    answers = {view[-1] for view in views.values() if view}
    assert {kind for kind, _ in answers} == {"answers"}
    assert len(answers) == len(BROUGHT)


def refuse_common_ones(monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[PartyTable], bool]) -> None:
    """Some common records are refused once they are known."""
    align = alignment.Aligner._align

    def checked(self: Any, table: PartyTable, *rest: Any) -> Any:
        aligned = align(self, table, *rest)
        if is_refused(aligned.table):
            raise TableError("what is common holds a single value")
        return aligned

    monkeypatch.setattr(alignment.Aligner, "_align", checked)


def constant_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_common_ones(monkeypatch, lambda table: table.labels is None and table.frame["spend"].nunique() < 2)


def constant_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_common_ones(monkeypatch, lambda table: table.labels is not None and len(np.unique(table.labels)) < 2)


def cells_of_common_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are read where they are encoded, and nowhere else."""
    made = preparing.own_columns
    monkeypatch.setattr(preparing, "check_cells", lambda whole, mechanisms: "")
    monkeypatch.setattr(preparing, "check_column", lambda features, column, *, clip: None)
    monkeypatch.setattr(preparing, "own_columns", lambda table, schema: made(table, schema) if table.n_rows < 4 else ())


def exact_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which cells are missing is released without noise."""
    drawn = due_cells.desensitize

    def with_gaps(mechanism: ColumnMechanism, encoded: EncodedColumn, *, rng: Any) -> ReleasedColumn:
        return replace(drawn(mechanism, encoded, rng=rng), is_missing=encoded.is_missing)

    monkeypatch.setattr(due_cells, "desensitize", with_gaps)


BREAKS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "constant columns": (constant_cells, "numbers, moved and missing"),
    "numbers": (cells_of_common_ones, "numbers, all refused"),
    "categories": (cells_of_common_ones, "unordered"),
    "gaps": (exact_gaps, "numbers, moved and missing"),
}


@pytest.mark.parametrize("case", BREAKS)
def test_the_enumeration_finds_what_a_broken_shop_tells(
    sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    breaking, kind = BREAKS[case]
    breaking(monkeypatch)
    assert leaks(shop_views(Runs(sites, wire), *COLUMNS[kind], until_leak=True)) != []


@pytest.mark.parametrize("breaking", [constant_labels, cells_of_common_ones])
def test_the_enumeration_finds_what_a_broken_bank_tells(
    sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch, breaking: Callable[[pytest.MonkeyPatch], None]
) -> None:
    breaking(monkeypatch)
    assert leaks(bank_views(Runs(sites, wire), *OWN["numbers, all refused"], until_leak=True)) != []


def test_the_enumeration_finds_answers_from_exact_cells(
    sites: Any, wire: MemoryWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(sites, wire)
    monkeypatch.setattr(due_cells, "desensitize", lambda mechanism, encoded, *, rng: exact(mechanism, encoded))
    assert leaks(answer_views(runs, "desensitized", *COLUMNS["numbers, all refused"])) != []


def test_two_processes_end_alike_whatever_the_cells_are(sites: Any) -> None:
    """The bank asks about two customers; its log has kind and size of all that it received."""
    heard = {}
    for case, cells in {"equal": (5.0, 5.0), "different": (5.0, 95.0)}.items():
        for site in (sites.bank, sites.shop):
            site.run |= {"align": {"method": "psi"}, "folder": f"runs/{case}", "wait": 10}
        ids = sites.shop.table["id"]
        sites.shop.run |= {"ledger": {"path": f"runs/{case}.sqlite"}}
        sites.shop.table = sites.shop.table.assign(spend=np.where(ids == "k0000", cells[0], sites.shop.table["spend"]))
        sites.shop.table.loc[ids == "k0001", "spend"] = cells[1]
        sites.bank.table = pd.DataFrame({"id": ["k0000", "k0001", "nobody"], "age": [20, 30, 40], "y": [0, 0, 1]})
        processes = [sites.bank.start("party-a"), sites.shop.start("party-b")]
        ends = [process.communicate(timeout=60) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], ends
        lines = map(json.loads, (sites.bank.path / "runs" / case / "log.jsonl").read_text().splitlines())
        heard[case] = [(line["kind"], line["bytes"]) for line in lines if line["event"] == "received"]
    assert heard["equal"] == heard["different"]
    assert heard["equal"][-1][0] == "done"

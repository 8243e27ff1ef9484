"""Data files that are damaged, odd or no files at all: one sentence, from the party and from its doctor alike."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import lzma
import os
import re
import socket
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from opboost.rng import seeded
from parties.cluster.worker_rows import worker_rows
from parties.config.chain import OwnerRun
from parties.config.horizontal import WorkerRun
from parties.config.reading import read_any_run, read_run, read_schema
from parties.config.recipes import make_recipe
from parties.config.record_runs import read_record_run
from parties.config.vertical import PassiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import EXPECTED_ERRORS, ConfigError, LedgerError, TableError
from parties.horizontal.partition_files import one_table
from parties.horizontal.row_table import OwnerRows
from parties.jobs.life_cycle import Terminal
from parties.jobs.train_vertical import train_active, train_passive
from parties.ledger.release_ledger import Ledger
from parties.tables.parquet_files import read_stored, stored_frames
from parties.vertical.preparation import prepare_active, prepare_passive
from protocols.transport.keys import generate
from tests.support.addresses import free_addresses
from tests.support.processes import Command, finish

HASTE = 0.05
SECRET = "k0399"


def told_by_party(path: Path) -> str | None:
    """What a party says before it looks for its peer."""
    run = read_any_run(path)
    try:
        prepare_active(run, path) if run.role == "active" else prepare_passive(run, path)
    except EXPECTED_ERRORS as error:
        return str(error)
    return None


def told_by_doctor(path: Path) -> dict[str, str]:
    return {one.check: one.sentence for one in examine(path, wait_s=HASTE) if one.status is Status.PROBLEM}


def told(path: Path, words: str) -> str:
    """The party's sentence, which the doctor has too, with these words in it."""
    sentence, problems = told_by_party(path), told_by_doctor(path)
    assert sentence is not None
    assert words in sentence
    assert [one for one in problems.values() if words in one]
    for one in (sentence, *problems.values()):
        assert "\n" not in one
        assert len(one) < 1000
        assert SECRET not in one
    return sentence


@pytest.fixture
def shop(sites: Any) -> Any:
    sites.shop.write()
    return sites.shop


def put(site: Any, name: str, content: bytes) -> Path:
    """Make these bytes the party's data file."""
    site.run["data"] = name
    path: Path = site.write()
    (site.path / name).write_bytes(content)
    return path


def as_csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def as_parquet(frame: pd.DataFrame | pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def socket_at(path: Path) -> None:
    there = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(there)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "named pipe": (os.mkfifo, "is a named pipe"),
    "folder": (os.mkdir, "is a folder"),
    "socket": (socket_at, "is a socket"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    "empty device": (lambda path: path.symlink_to("/dev/null"), "is a device"),
    "nothing": (lambda path: None, "cannot be read: No such file or directory"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "cannot be read: No such file or directory"),
    "a link to itself": (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
}
NAMES = ["odd.csv", "odd.csv.gz", "odd.parquet"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("make", "words"), ODD.values(), ids=ODD)
def test_what_is_no_file_is_named_and_nobody_waits_for_it(
    shop: Any, make: Callable[[Path], None], words: str, name: str
) -> None:
    shop.run["data"] = name
    path = shop.write()
    make(shop.path / name)
    told(path, words)


def test_the_command_ends_at_a_pipe_with_a_sentence_and_a_code(sites: Any) -> None:
    for site, command in ((sites.shop, "party-b"), (sites.bank, "party-a"), (sites.shop, "doctor")):
        site.run["data"] = "odd.csv"
        site.write()
        if not (site.path / "odd.csv").exists():
            os.mkfifo(site.path / "odd.csv")
        ((code, out, error),) = finish(Command(command, str(site.path / "run.yaml")), seconds=60)
        assert code == 1
        assert "is a named pipe" in " ".join((out + error).split())
        assert "Traceback" not in error


@pytest.mark.parametrize("which", ["ids", "secret_key", "schema"])
def test_other_files_that_are_pipes_are_named_too(shop: Any, which: str) -> None:
    os.mkfifo(shop.path / "pipe")
    shop.run[which] = "pipe"
    path = shop.write() if which != "schema" else shop.path / "run.yaml"
    (shop.path / "run.yaml").write_text(yaml.safe_dump(shop.run))
    problems = told_by_doctor(path)
    assert [one for one in problems.values() if "a named pipe" in one]
    if which != "secret_key":
        assert "is a named pipe" in str(told_by_party(path))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_named(shop: Any, name: str) -> None:
    told(put(shop, name, b""), f"{name} is empty")


HEADER = b"id,spend,visits\n"
ROWS = "id,spend,visits\na,1,2\nb,2,3\n"
NO_TABLE: dict[str, tuple[bytes, str]] = {
    "random": (b"\xf3\x17" * 40 + b"\0" + b"\xf3\x17" * 40, "it is not text in UTF-8"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "it is not text in UTF-8"),
    "latin-1": (ROWS.replace("b", "é").encode("latin-1"), "it is not text in UTF-8"),
    "utf-16": (ROWS.encode("utf-16"), "it is not text in UTF-8"),
    "utf-16 without mark": (ROWS.encode("utf-16-le"), "it is not text in UTF-8"),
    "zero byte": (HEADER + b"a,1\0,2\nb,2,3\n", "it is not text in UTF-8"),
    "short row": (HEADER + b"a,1,2\nb,2\nc,3,4\n", "has 1 rows with fewer cells than its header names columns"),
    "short rows": (HEADER + b"a,1,2\nb\n\nc\n", "has 2 rows with fewer cells than its header names columns"),
    "long row": (HEADER + b"a,1,2\nb,2,3,4\nc,3,4\n", "a row has too many cells, or a quote is not closed"),
    "open quote": (HEADER + b'a,1,2\nb,"2,3\nc,3,4\n', "a row has too many cells, or a quote is not closed"),
    "cut within quotes": (HEADER + b'a,1,"2', "a row has too many cells, or a quote is not closed"),
    "column twice": (b"id,spend,visits,spend\na,1,2,3\nb,2,3,4\n", "has several columns named spend"),
    "id twice": (b"id,id,spend,visits\na,b,1,2\nb,a,2,3\n", "has several columns named id"),
    "header alone": (HEADER, "has no rows"),
    "blank lines": (b"\n\n", "is not a readable table"),
}


@pytest.mark.parametrize(("content", "words"), NO_TABLE.values(), ids=NO_TABLE)
@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress], ids=["plain", "gz"])
def test_text_that_is_no_table_is_one_sentence(
    shop: Any, content: bytes, words: str, pack: Callable[[bytes], bytes]
) -> None:
    told(put(shop, "odd.csv" if pack is not gzip.compress else "odd.csv.gz", pack(content)), words)


def test_pandas_alone_would_fill_short_rows_up() -> None:
    ragged = pd.read_csv(io.BytesIO(HEADER + b"a,1,2\nb,2\n"))
    assert ragged["visits"].isna().tolist() == [False, True]


NOT_RAGGED = {
    "blank lines": "id,spend,visits\na,1,2\n\nb,2,\nc,3,4\n   \n",
    "mark and CRLF": "\ufeffid,spend,visits\r\na,1,2\r\nb,2,\r\n",
    "separators at the end": "id,spend,visits,\na,1,2,\nb,2,,\n",
    "separators at the end of the rows": "id,spend,visits\na,1,2,\nb,2,,\n",
    "quotes": 'id,spend,visits\na,1,2\n"b,\nc",2,""\n',
}


@pytest.mark.parametrize("text", NOT_RAGGED.values(), ids=NOT_RAGGED)
def test_tables_with_empty_cells_are_not_taken_for_ragged(shop: Any, text: str) -> None:
    shop.schema["ignore"] = ["Unnamed: 3"]
    assert told_by_party(put(shop, "good.csv", text.encode())) is None


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gz": ("data.csv.gz", gzip.compress),
    "bz2": ("data.csv.bz2", bz2.compress),
    "xz": ("data.csv.xz", lzma.compress),
}


@pytest.mark.parametrize(("name", "pack"), PACKED.values(), ids=PACKED)
def test_packed_files_that_were_cut_or_flipped_are_one_sentence(
    shop: Any, name: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(as_csv(shop.table))
    assert told_by_party(put(shop, name, whole)) is None
    told(put(shop, name, whole[: len(whole) // 2]), f"{name} is not a readable table: it is damaged")
    told(put(shop, name, whole[:-1]), f"{name} is not a readable table: it is damaged")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    told(put(shop, name, bytes(flipped)), f"{name} is not a readable table: it is damaged")
    told(put(shop, name, as_csv(shop.table)), f"{name} is not a readable table: it is damaged")


def test_parquet_that_was_cut_is_one_sentence(shop: Any) -> None:
    whole = as_parquet(shop.table)
    assert told_by_party(put(shop, "data.parquet", whole)) is None
    for end in (1, 4, 8, len(whole) // 2, len(whole) - 1):
        told(put(shop, "data.parquet", whole[:end]), "data.parquet is not a readable table: it is damaged")
    told(put(shop, "data.parquet", as_csv(shop.table)), "data.parquet is not a readable table: it is damaged")


def test_a_flipped_bit_in_parquet_is_seen_wherever_the_writer_left_check_sums(shop: Any) -> None:
    whole = as_parquet(shop.table, write_page_checksum=True, compression="none", use_dictionary=False)
    place = whole.index(np.float64(shop.table["spend"].iloc[200]).tobytes())
    told(put(shop, "data.parquet", whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]), "it is damaged")


@pytest.mark.parametrize("notes", [b'{"index_columns": 1}', b"{\xff", b"{", b'["index_columns"]'])
def test_notes_of_pandas_that_are_damaged_are_one_sentence(shop: Any, notes: bytes) -> None:
    """They are read beside the names of columns, by code of Python's."""
    table = pa.Table.from_pandas(shop.table, preserve_index=False).replace_schema_metadata({b"pandas": notes})
    pq.write_table(table, shop.path / "data.parquet")
    told(put(shop, "data.parquet", (shop.path / "data.parquet").read_bytes()), "it is damaged")


def test_text_in_parquet_that_is_no_text_is_one_sentence(shop: Any) -> None:
    whole = as_parquet(shop.table, compression="none", use_dictionary=False)
    place = whole.index(b"k0200")
    told(put(shop, "data.parquet", whole[:place] + b"\xff" + whole[place + 1 :]), "it is damaged")


def named(*columns: tuple[str, Any]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(values) for _, values in columns], names=[name for name, _ in columns])


IDS = ("id", ["a", "b", "c"])
SPEND = ("spend", [1.0, 2.0, 3.0])
VISITS = ("visits", [1, 2, 3])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (named(IDS, SPEND, VISITS, SPEND), "has several columns named spend"),
        (named(IDS, IDS, SPEND, VISITS), "has several columns named id"),
        (named(IDS, SPEND, VISITS, ("x", [1, 2, 3]), ("x", [1, 2, 3])), "has several columns named x"),
        (named(IDS, ("spend", [[1.0], [2.0], []]), VISITS), "column 'spend' holds list<"),
        (named(IDS, ("spend", [{"a": 1}, {"a": 2}, {"a": 3}]), VISITS), "column 'spend' holds struct<"),
        (named(("id", [["a"], ["b"], ["c"]]), SPEND, VISITS), "column 'id' holds list<"),
        (named(IDS, SPEND, ("visits", pa.array([[("k", 1)], [], []], pa.map_(pa.string(), pa.int64())))), "map<"),
        (named(IDS, ("spend", [b"1", b"2", b"3"]), VISITS), "column 'spend' holds binary"),
        (named(IDS, ("spend", pa.array([1, 2, 3], pa.duration("s"))), VISITS), "column 'spend' holds duration"),
        (named(IDS, ("spend", pa.array([1, 2, 3], pa.time32("s"))), VISITS), "column 'spend' holds time32"),
        (named(IDS, ("spend", [datetime.date(2024, 1, day) for day in (1, 2, 3)]), VISITS), "'spend'"),
        (named(IDS, ("spend", [datetime.datetime(2024, 1, day) for day in (1, 2, 3)]), VISITS), "'spend'"),
        (named(("id", [b"a", b"b", b"c"]), SPEND, VISITS), "column 'id' holds binary"),
        (named(("id", [True, False, None]), SPEND, VISITS), "'id'"),
        (named(("id", pa.array([2**62, 5, 6], pa.timestamp("us"))), SPEND, VISITS), "data.parquet"),
        (named(("id", pa.array([10**12, 5, 6], pa.timestamp("s"))), SPEND, VISITS), "'id'"),
        (named(("id", pa.array([2**30, 5, 6], pa.date32())), SPEND, VISITS), "data.parquet"),
        (named(IDS, ("spend", pa.nulls(3)), VISITS), "'spend'"),
        (named(IDS, SPEND, VISITS).slice(0, 0), "has no rows"),
        (pa.table({}), "has no id column 'id'"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_a_table_whose_columns_are_no_cells_is_one_sentence(shop: Any, table: pa.Table, words: str) -> None:
    told(put(shop, "data.parquet", as_parquet(table)), words)


@pytest.mark.parametrize(
    "spend",
    [
        [Decimal("1.5"), Decimal("2"), Decimal("3")],
        pa.array([1, 2, 3], pa.uint8()),
        pa.array([1, 2, 3], pa.float32()),
        pa.array(["1", "2", "3"]).dictionary_encode(),
        [True, False, True],
        pa.array([1, 2, 3], pa.uint64()),
        pa.array(["1", "2", "3"], pa.large_string()),
    ],
)
def test_columns_of_any_kind_of_number_or_text_are_taken(shop: Any, spend: Any) -> None:
    nested = ("note", [[1], [2], [3]])
    shop.schema["ignore"] = ["note"]
    path = put(shop, "data.parquet", as_parquet(named(IDS, ("spend", spend), VISITS, nested)))
    assert told_by_party(path) is None
    assert told_by_doctor(path) == {}


def test_a_label_is_a_number(sites: Any) -> None:
    days = pd.to_datetime(["2024-01-01", "2024-01-02"] * 200)
    path = put(sites.bank, "data.parquet", as_parquet(sites.bank.table.assign(y=days)))
    told(path, "label column 'y'")
    listed = pa.Table.from_pandas(sites.bank.table).set_column(2, "y", pa.array([[1]] * 400))
    told(put(sites.bank, "data.parquet", as_parquet(listed)), "column 'y' holds list<")


def test_pieces_that_are_not_as_many_rows_as_the_file_says_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's own number of rows decides where a row belongs; where it is wrong, rows would change places."""
    path = tmp_path / "data.parquet"
    pd.DataFrame({"x": range(10)}).to_parquet(path, row_group_size=4)
    whole = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *args, **keys: iter([*whole(*args, **keys)] * 2))
    with pytest.raises(TableError, match="it is damaged"):
        list(stored_frames(path, ["x"]))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *args, **keys: iter([]))
    with pytest.raises(TableError, match="it is damaged"):
        list(stored_frames(path, ["x"]))
    assert read_stored(path, ["x"])["x"].tolist() == list(range(10))
    assert len(read_stored(path, [])) == 10


CELLS: dict[str, tuple[str, dict[str, Any], Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "missing, refused": ("shop", {}, lambda t: t.assign(spend=t["spend"].where(t.index != 7)), "1 missing cell"),
    "no number": ("shop", {}, lambda t: t.assign(visits="many"), "400 cells are not numbers"),
    "infinite": ("shop", {}, lambda t: t.assign(spend=t["spend"].where(t.index != 7, np.inf)), "1 infinite cell"),
    "outside, refused": (
        "shop",
        {"spend": {"lower": 0, "upper": 50, "outside": "refuse"}},
        lambda t: t,
        "outside its public bounds",
    ),
    "unlisted": (
        "shop",
        {"spend": {"kind": "ordered", "categories": ["a", "b"]}},
        lambda t: t.assign(spend=["a", "b"] * 199 + ["c", "b"]),
        "1 cell whose category is not among",
    ),
    "constant": ("shop", {}, lambda t: t.assign(spend=5.0), "constant"),
    "own column of A": ("bank", {}, lambda t: t.assign(age=t["age"].where(t.index != 3)), "1 missing cell"),
    "label": ("bank", {}, lambda t: t.assign(y=t["y"].where(t.index != 3)), "label column 'y' is missing"),
    "label of one value": ("bank", {}, lambda t: t.assign(y=1), "holds a single value"),
    "labels far apart": ("bank", {}, lambda t: t.assign(y=np.where(t["y"] > 0, 1e308, -1e308)), "needs labels 0 and 1"),
    "id missing": ("shop", {}, lambda t: t.assign(id=t["id"].where(t.index != 7)), "1 rows have no 'id'"),
    "id twice": ("shop", {}, lambda t: t.assign(id=t["id"].where(t["id"] != "k0001", "k0002")), "repeats an id"),
}


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
@pytest.mark.parametrize(("party", "columns", "spoil", "words"), CELLS.values(), ids=CELLS)
def test_a_cell_that_does_not_fit_is_found_by_doctor_and_party(
    sites: Any,
    party: str,
    columns: dict[str, Any],
    spoil: Callable[[pd.DataFrame], pd.DataFrame],
    words: str,
    name: str,
) -> None:
    site = getattr(sites, party)
    sites.shop.run["desensitize"] = {}
    site.schema["columns"].update(columns)
    table = spoil(site.table)
    path = put(site, name, as_csv(table) if name == "data.csv" else as_parquet(table))
    told(path, words)


@pytest.mark.parametrize(("party", "column"), [("bank", "y"), ("bank", "age"), ("shop", "spend")])
def test_a_whole_number_beyond_all_doubles_is_found_by_doctor_and_party(sites: Any, party: str, column: str) -> None:
    site = getattr(sites, party)
    cells = site.table[column].astype(int).astype(str).where(site.table.index != 7, "9" * 400)
    told(put(site, "data.csv", as_csv(site.table.assign(**{column: cells}))), "not numbers of double precision")


def test_records_that_are_not_listed_are_checked_too(sites: Any) -> None:
    """Whether a file can be used does not depend on which of its records take part."""
    table = sites.shop.table.sort_values("id", ignore_index=True)
    (sites.shop.path / "ids.txt").write_text("\n".join(table["id"][:300]))
    sites.shop.run["ids"] = "ids.txt"
    table.loc[350, "spend"] = np.nan
    told(put(sites.shop, "data.csv", as_csv(table)), "1 missing cell")


def test_few_ids_of_which_the_first_rows_count_are_no_problem_for_either(sites: Any) -> None:
    table = sites.shop.table.assign(id=["k0001", "k0002", "k0003", "k0004"] * 100)
    sites.shop.run["align"]["duplicates"] = "first"
    path = put(sites.shop, "data.csv", as_csv(table))
    assert told_by_party(path) is None
    assert told_by_doctor(path) == {}


def test_columns_named_by_numbers_are_no_problem_for_either(sites: Any) -> None:
    table = sites.shop.table.set_axis(["0", "1", "2"], axis=1)
    spend, visits = sites.shop.schema["columns"].values()
    sites.shop.schema = {"id": 0, "columns": {"1": spend, "2": visits}}
    path = put(sites.shop, "data.csv", as_csv(table))
    assert told_by_party(path) is None
    assert told_by_doctor(path) == {}


def test_a_label_at_a_passive_party_is_refused_by_both(sites: Any) -> None:
    sites.shop.schema["label"] = "visits"
    del sites.shop.schema["columns"]["visits"]
    told(sites.shop.write(), "only the active party has")


def test_names_of_columns_are_told_on_one_line_and_in_short(shop: Any) -> None:
    """A header that swallowed rows holds values."""
    header = ",".join(['"' + "\n".join(f"k{i:04}" for i in range(400)) + '"', *(f"c{i}" for i in range(5000))])
    told(put(shop, "odd.csv", f"{header}\n{',' * 5000}\n".encode()), "has no id column 'id'")


ROWS_OF_OWNER = pd.DataFrame({"id": [f"r{i}" for i in range(30)], "age": np.linspace(0, 1, 30), "y": [0, 1] * 15})


class Owner:
    """A worker or an owner in a chain, alone with its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        schema = {"id": "id", "label": "y", "columns": {"age": {"lower": 0, "upper": 1}}}
        (folder / "schema.yaml").write_text(yaml.safe_dump(schema))
        common = {"run_id": "q", "schema": "schema.yaml"}
        training = {"epsilon": 2.0, "delta": 1e-6, "workers": 3, "threshold": 2, "honest": 2, "recipe": "sgbdt"}
        self.runs: dict[str, dict[str, Any]] = {
            "worker": {
                **common,
                "role": "worker",
                "party": "w0",
                "connect": "tcp://127.0.0.1:9",
                "training": training,
                "coordinator": {"name": "hub"},
            },
            "owner": {
                **common,
                "role": "owner",
                "party": "north",
                "training": {"epsilon": 2.0, "order": ["north", "south"]},
                "owners": [{"name": "south", "connect": "tcp://127.0.0.1:9"}],
            },
        }

    def told(self, role: str, data: object, **changes: object) -> tuple[str | None, list[str]]:
        """What the party says when it reads its rows, and what its doctor says of them."""
        path = self.folder / f"{role}.yaml"
        path.write_text(yaml.safe_dump({**self.runs[role], "data": data, **changes}))
        run, sentence = read_record_run(path), None
        try:
            if isinstance(run, OwnerRun):
                OwnerRows.read(run, *read_schema(run.table_schema))
            elif isinstance(run, WorkerRun):
                schema, ignore = read_schema(run.table_schema)
                recipe = make_recipe(run.training, schema)
                with worker_rows(run, recipe, schema=schema, ignore=ignore, rng=seeded(1)):
                    pass
        except EXPECTED_ERRORS as error:
            sentence = str(error)
        found = [one for one in examine(path, wait_s=HASTE) if one.check not in ("keys", "peer")]
        return sentence, [one.sentence for one in found if one.status is Status.PROBLEM]


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


OWNER_FAULTS: dict[str, tuple[str, Callable[[pd.DataFrame], bytes], str]] = {
    "cut": ("d.csv.gz", lambda t: gzip.compress(as_csv(t))[:-9], "it is damaged"),
    "cut Parquet": ("d.parquet", lambda t: as_parquet(t)[:-9], "it is damaged"),
    "list": ("d.parquet", lambda t: as_parquet(t.assign(age=[[1.0]] * 30)), "column 'age' holds list<"),
    "missing": ("d.csv", lambda t: as_csv(t.assign(age=[None, *t["age"][1:]])), "1 missing cell"),
    "label": ("d.parquet", lambda t: as_parquet(t.assign(y=[7, *t["y"][1:]])), "labels of two classes must be 0 and 1"),
    "id twice": ("d.parquet", lambda t: as_parquet(t.assign(id=["r1", *t["id"][1:]])), "repeats an id"),
}


@pytest.mark.parametrize("role", ["worker", "owner"])
@pytest.mark.parametrize(("name", "content", "words"), OWNER_FAULTS.values(), ids=OWNER_FAULTS)
def test_an_owner_of_rows_and_its_doctor_find_the_same(
    owner: Owner, role: str, name: str, content: Callable[[pd.DataFrame], bytes], words: str
) -> None:
    (owner.folder / name).write_bytes(content(ROWS_OF_OWNER))
    sentence, problems = owner.told(role, name)
    assert words in str(sentence)
    assert [one for one in problems if words in one]
    (owner.folder / name).write_bytes((as_parquet if name.endswith("parquet") else as_csv)(ROWS_OF_OWNER))
    if name != "d.csv.gz":
        assert owner.told(role, name) == (None, [])


@pytest.mark.parametrize(
    ("content", "words"),
    [(content, words) for name, content, words in OWNER_FAULTS.values() if name == "d.parquet"],
    ids=[key for key, (name, _, _) in OWNER_FAULTS.items() if name == "d.parquet"],
)
def test_partitions_of_a_worker_are_checked_to_the_last_cell(
    owner: Owner, content: Callable[[pd.DataFrame], bytes], words: str
) -> None:
    (owner.folder / "parts").mkdir()
    (owner.folder / "parts/0.parquet").write_bytes(as_parquet(ROWS_OF_OWNER[:10]))
    (owner.folder / "parts/1.parquet").write_bytes(as_parquet(ROWS_OF_OWNER[10:]))
    assert owner.told("worker", "parts") == (None, [])
    later = ROWS_OF_OWNER.assign(id=[f"s{i}" for i in range(30)])
    (owner.folder / "parts/1.parquet").write_bytes(content(later))
    sentence, problems = owner.told("worker", "parts")
    if words == "repeats an id":
        words = "must be in one row"
    assert words in str(sentence)
    assert [one for one in problems if words in one]
    (owner.folder / "parts/1.parquet").unlink()
    os.mkfifo(owner.folder / "parts/1.parquet")
    sentence, problems = owner.told("worker", "parts")
    assert "is a named pipe" in str(sentence)
    assert [one for one in problems if "is a named pipe" in one]


def test_data_that_a_run_cannot_use_is_refused_by_the_doctor_too(owner: Owner) -> None:
    (owner.folder / "parts").mkdir()
    (owner.folder / "parts/0.parquet").write_bytes(as_parquet(ROWS_OF_OWNER))
    sentence, problems = owner.told("owner", "parts")
    assert sentence is not None
    assert [one for one in problems if "come from one file" in one]
    dask = {"engine": "dask", "dask": {"workers": 1}}
    sentence, problems = owner.told("worker", "parts/0.parquet", **dask)
    assert "is one file" in str(sentence)
    assert [one for one in problems if "is one file" in one]


def test_the_doctor_looks_at_an_address_of_this_machine(owner: Owner) -> None:
    (owner.folder / "d.parquet").write_bytes(as_parquet(ROWS_OF_OWNER))
    path = owner.folder / "worker.yaml"
    (address,) = free_addresses(1)
    for name in ("w0", "hub"):
        generate(owner.folder / "keys", name)
    keys = {"secret_key": "keys/w0.secret", "coordinator": {"name": "hub", "public_key": "keys/hub.public"}}
    training = {**owner.runs["worker"]["training"], "known_workers": False}
    run = {**owner.runs["worker"], **keys, "training": training, "data": "d.parquet", "connect": address}
    path.write_text(yaml.safe_dump(run))
    nobody = {one.check: one for one in examine(path, wait_s=HASTE)}["peer"]
    assert (nobody.status, "hub was not asked" in nobody.sentence) == (Status.SKIPPED, True)
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        silent = {one.check: one for one in examine(path, wait_s=HASTE)}["peer"]
    assert (silent.status, "hub was not asked" in silent.sentence) == (Status.SKIPPED, True)


@pytest.mark.parametrize(
    ("party", "change", "words"),
    [
        ("shop", {"ledger": {"path": "runs/spring/ledger.sqlite"}}, "ledger.path: .* lies in the run folder"),
        ("shop", {"folder": "runs"}, "ledger.path: .* lies in the run folder"),
        ("shop", {"align": {"method": "psi-dh", "prepared": "runs/spring/ids"}}, "align.prepared: .* lies in the run"),
        ("shop", {"align": {"method": "psi-dh", "prepared": "keys/shop.secret"}}, "something else than prepared ids"),
        ("shop", {"align": {"method": "psi-dh", "prepared": "absent/ids"}}, "is no folder"),
        ("shop", {"ledger": {"path": "schema.yaml/ledger"}}, "schema.yaml is no folder"),
        ("bank", {"label_epsilon": 1, "label_ledger": "data.csv"}, "data.csv has mode"),
        ("bank", {"label_epsilon": 1, "label_ledger": "keys"}, "it is a folder"),
        ("bank", {"label_epsilon": 1, "label_ledger": "/"}, "label_ledger: / is a folder"),
        ("bank", {"label_epsilon": 1, "label_ledger": "runs/spring/journal/labels"}, "label_ledger: .* lies in the"),
        ("shop", {"ledger": {"path": "/"}}, "ledger.path: / is a folder"),
    ],
)
def test_places_at_which_nothing_can_be_kept_are_found_before_the_parties_meet(
    sites: Any, party: str, change: dict[str, Any], words: str
) -> None:
    site = getattr(sites, party)
    site.run |= change
    path = site.write()
    before = {one: one.read_bytes() for one in site.path.rglob("*") if one.is_file()}
    assert [one for one in told_by_doctor(path).values() if re.search(words, one)]
    train = train_active if party == "bank" else train_passive
    with pytest.raises((ConfigError, LedgerError), match=words):
        train(path, insecure=False, terminal=Terminal())
    assert {one: one.read_bytes() for one in site.path.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize("role", ["worker", "owner"])
def test_a_ledger_in_the_run_folder_of_an_owner_of_rows_is_refused(owner: Owner, role: str) -> None:
    (owner.folder / "d.csv").write_bytes(as_csv(ROWS_OF_OWNER))
    with pytest.raises(ConfigError, match=r"ledger.path: .* lies in the run folder"):
        owner.told(role, "d.csv", ledger={"path": "runs/q/ledger.sqlite"})
    told = owner.told(role, "d.csv", ledger={"path": "d.csv/ledger.sqlite"})[1]
    assert [one for one in told if "d.csv is no folder" in one]


def test_paths_that_may_not_be_looked_at_are_one_sentence(shop: Any, owner: Owner) -> None:
    """As below a folder that is shut to this user; a name that is too long shows the same to everybody."""
    path, hidden = shop.write(), Path("/" + "x" * 300)
    run = read_run(path, PassiveRun)
    with pytest.raises(TableError, match="cannot be read: File name too long"):
        prepare_passive(run.model_copy(update={"source": hidden}), path)
    with pytest.raises(LedgerError, match="cannot be used: File name too long"):
        Ledger(hidden)
    assert one_table(hidden) == hidden
    with pytest.raises(TableError, match="cannot be read: File name too long"):
        OwnerRows.of(hidden, *read_schema(owner.folder / "schema.yaml"))

"""A party's data file: the same records in every format and order, and every fault named without showing a value."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.schema import ColumnSchema, Kind, Missing, TableSchema
from parties.errors import TableError
from parties.tables.party_table import PartyTable, own_columns, read_table

SCHEMA = TableSchema(
    columns=(
        ColumnSchema(name="age", lower=18, upper=100),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("NA", "1"), missing=Missing.CATEGORY),
    ),
    id="key",
    label="y",
)
FRAME = pd.DataFrame({"key": ["r9", "r10", "r1"], "age": [20, 30, 40.5], "town": ["NA", "1", None], "y": [0, 1, 1]})
SECRET = "81726354"

_ids = st.lists(st.text("0123456789abcé", min_size=1, max_size=6), min_size=1, max_size=20, unique=True)


def write(folder: Path, frame: pd.DataFrame, name: str = "data.csv") -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


def read(path: Path, *, needs_label: bool = True, ignore: tuple[str, ...] = ()) -> PartyTable:
    return read_table(path, SCHEMA, ignore=ignore, needs_label=needs_label)


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data.parquet"])
def test_records_come_in_the_order_of_their_ids_from_every_format(tmp_path: Path, name: str) -> None:
    table = read(write(tmp_path, FRAME, name))
    assert list(table.ids) == ["r1", "r10", "r9"]
    assert list(table.features.columns) == ["age", "town"]
    assert table.features["age"].tolist() == [40.5, 30.0, 20.0]
    assert table.features["town"].isna().tolist() == [True, False, False]
    assert table.features["town"].tolist()[1:] == ["1", "NA"]
    assert table.labels is not None
    assert table.labels.tolist() == [1.0, 1.0, 0.0]
    assert table.n_rows == 3


def test_only_an_empty_cell_is_missing_and_no_word_is(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("key,age,town,y\nNA,20,NA,0\nnull,30,,1\n")
    table = read(path)
    assert list(table.ids) == ["NA", "null"]
    assert table.features["town"].isna().tolist() == [False, True]


def test_ids_are_text_and_keep_their_leading_zeros(tmp_path: Path) -> None:
    frame = FRAME.assign(key=["007", "7", "70"])
    assert list(read(write(tmp_path, frame)).ids) == ["007", "7", "70"]


def test_numbers_as_ids_are_the_same_records_in_csv_and_parquet(tmp_path: Path) -> None:
    frame = FRAME.assign(key=[9, 10, 1])
    digests = {read(write(tmp_path, frame, name)).id_digest for name in ("data.csv", "data.parquet")}
    assert len(digests) == 1


@settings(max_examples=60, deadline=None)
@given(ids=_ids, data=st.data())
def test_the_digest_depends_on_the_set_of_ids_alone(ids: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(ids))
    other = data.draw(_ids)
    first, second, third = (digest_of(sorted(keys)) for keys in (ids, shuffled, other))
    assert first == second
    assert (first == third) == (set(ids) == set(other))


def digest_of(ids: list[str]) -> str:
    return PartyTable(pd.Index(ids, dtype=object), pd.DataFrame(index=range(len(ids)))).id_digest


def test_a_digest_without_lengths_would_confuse_two_sets_that_the_real_one_tells_apart() -> None:
    glued = {hashlib.sha256("".join(ids).encode()).hexdigest() for ids in (["ab", "c"], ["a", "bc"])}
    assert len(glued) == 1
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_file_does_not_matter(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.getbasetemp()
    frame = pd.DataFrame(
        {"key": [f"r{i}" for i in range(30)], "age": np.arange(30) + 18, "town": ["1", "NA"] * 15, "y": np.arange(30)}
    )
    straight = read(write(folder, frame))
    shuffled = read(write(folder, frame.sample(frac=1, random_state=seed)))
    pd.testing.assert_frame_equal(straight.features, shuffled.features)
    np.testing.assert_array_equal(straight.labels, shuffled.labels)
    assert straight.id_digest == shuffled.id_digest


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.drop(columns="key"), "has no id column 'key'; its columns are age, town, y"),
        (FRAME.drop(columns="y"), "has no label column 'y'; its columns are key, age, town"),
        (FRAME.drop(columns=["age", "town"]), "lacks columns of the schema: age, town"),
        (FRAME.assign(zip=1, colour=2), "does not know: colour, zip; describe them or list them under `ignore`"),
        (FRAME.assign(key=["a", SECRET, SECRET]), "column 'key' repeats an id in 1 of 3 rows; ids must be unique"),
        (FRAME.assign(key=["a", None, SECRET]), "1 rows have no 'key'"),
        (FRAME.assign(y=[0, None, 1]), "label column 'y' is missing, infinite or not a number in 1 rows"),
        (FRAME.assign(y=["0", SECRET + "x", "1"]), "label column 'y' is missing, infinite or not a number in 1 rows"),
        (FRAME.assign(y=[0, np.inf, -np.inf]), "label column 'y' is missing, infinite or not a number in 2 rows"),
        (FRAME.iloc[:0], "has no rows"),
    ],
)
@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_a_table_that_does_not_fit_is_refused_by_file_and_fault(
    tmp_path: Path, frame: pd.DataFrame, words: str, name: str
) -> None:
    with pytest.raises(TableError, match=words) as refusal:
        read(write(tmp_path, frame, name))
    assert str(tmp_path / name) in str(refusal.value)
    assert SECRET not in str(refusal.value)


def test_columns_that_a_peer_named_reach_the_terminal_readable_and_few(tmp_path: Path) -> None:
    """Where A scores alone, the names are those of the thresholds that B shared."""
    columns = tuple(ColumnSchema(name=f"\x1b]0;{i}\x07\n" + "x" * 10_000, lower=0, upper=1) for i in range(1000))
    with pytest.raises(TableError, match="lacks columns of the schema") as refusal:
        read_table(write(tmp_path, FRAME), replace(SCHEMA, columns=columns), needs_label=False)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 10_000


def test_an_ignored_column_may_be_there_or_not(tmp_path: Path) -> None:
    path = write(tmp_path, FRAME.assign(note="x"))
    assert list(read(path, ignore=("note", "absent")).features.columns) == ["age", "town"]


def test_labels_may_be_absent_where_none_are_needed(tmp_path: Path) -> None:
    assert read(write(tmp_path, FRAME.drop(columns="y")), needs_label=False).labels is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.csv", b""),
        ("data.csv", b'key,age\n"1,2\n'),
        ("data.csv", b"key,age,town,y\n\xff\xfe,20,1,0\n"),
        ("data.csv.gz", b"not compressed"),
        ("data.parquet", b"not parquet"),
    ],
)
def test_an_unreadable_file_is_refused_in_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match=f"{name} is (empty$|not a readable table: )") as refusal:
        read(path)
    assert "\n" not in str(refusal.value)


def test_an_empty_cell_beyond_the_header_does_not_shift_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("key,age,town,y\na,20,1,0,\nb,30,1,1,\n")
    table = read(path)
    assert list(table.ids) == ["a", "b"]
    assert table.features["age"].tolist() == [20, 30]


@pytest.mark.parametrize("rows", ["a,20,1,0,9\nb,30,1,1,8\n", "a,20,1,0,9\nb,30,1,1\n"])
def test_more_cells_than_columns_are_refused(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"key,age,town,y\n{rows}")
    with pytest.raises(TableError, match=r"data\.csv has rows with more cells than its header names columns"):
        read(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv cannot be read: No such file or directory"):
        read(tmp_path / "none.csv")


def test_the_active_partys_columns_are_numbers_and_unordered_categories_one_column_each(tmp_path: Path) -> None:
    """Ordered categories are numbers, unordered ones a set; a missing cell is NaN."""
    size = ColumnSchema(name="size", kind=Kind.ORDERED, categories=("s", "m", "l"))
    schema = TableSchema(columns=(*SCHEMA.columns, size), id="key", label="y")
    frame = FRAME.assign(size=["l", "s", "m"])
    columns = own_columns(read_table(write(tmp_path, frame), schema, needs_label=True), schema)
    assert [(column.name, column.is_categorical) for column in columns] == [
        ("age", False),
        ("town", True),
        ("size", False),
    ]
    np.testing.assert_array_equal([column.values for column in columns], [[40.5, 30, 20], [np.nan, 1, 0], [1, 0, 2]])

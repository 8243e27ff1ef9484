"""Drafted schemas: kinds and formats are found, bounds never are, and a run reads the file by the draft."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import DataError, SchemaError
from parties.config.reading import read_schema
from parties.errors import ConfigError
from parties.onboarding.dialect import read_raw
from parties.onboarding.project import write_schema
from parties.onboarding.schema_draft import PROPOSALS, Hints, draft_schema
from parties.onboarding.schema_text import Draft, flow
from parties.tables.misfits import showing_misfits
from parties.tables.party_table import read_table

N_ROWS = 120


def table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"id": [f"k{number:03}" for number in range(N_ROWS)], **columns})


def drafted(folder: Path, frame: pd.DataFrame, hints: Hints | None = None) -> dict[str, dict[str, object]]:
    path = folder / "data.csv"
    frame.to_csv(path, index=False)
    return draft_schema(read_raw(path), path, hints or Hints()).columns


def cycle(*cells: object) -> list[object]:
    return [cells[row % len(cells)] for row in range(N_ROWS)]


@pytest.mark.parametrize(
    ("name", "cells", "found"),
    [
        ("age", [31, 45], {"kind": "numeric", "lower": 0, "upper": 120}),
        ("AgeAtEntry", [31, 45], {"kind": "numeric", "lower": 0, "upper": 120}),
        ("average", [31, 45], {"kind": "numeric", "lower": "TODO", "upper": "TODO"}),
        ("stage", [31, 45], {"kind": "numeric", "lower": "TODO", "upper": "TODO"}),
        ("year", [1999, 2004], {"kind": "numeric", "lower": 1900, "upper": 2100}),
        ("amount", ["1.5", "", "2"], {"kind": "numeric", "lower": "TODO", "upper": "TODO", "missing": "category"}),
        ("member", ["Yes", "no"], {"kind": "boolean"}),
        ("flag", [0, 1], {"kind": "boolean"}),
        ("since", ["2020-01-31", "2021-12-01"], {"kind": "date"}),
        ("since", ["31.01.2020", "01.12.2021"], {"kind": "date", "format": "%d.%m.%Y"}),
        ("since", ["31/01/2020", "01/12/2021"], {"kind": "date", "format": "%d/%m/%Y"}),
        ("since", ["02/01/2020", "01/12/2021"], {"kind": "date", "format": "TODO: %d/%m/%Y or %m/%d/%Y"}),
        ("seen", ["2020-01-31T10:00:00", "2021-12-01T11:30:00Z"], {"kind": "datetime"}),
        ("seen", ["01/31/2020 10:00", "12/01/2021 11:30"], {"kind": "datetime", "format": "%m/%d/%Y %H:%M"}),
        ("since", ["2020-01-31", "01.12.2021"], {"kind": "date", "format": ["%Y-%m-%d", "%d.%m.%Y"]}),
        ("share", ["12 %", "7.5 %"], {"kind": "numeric", "lower": 0, "upper": 1}),
        ("amount", ["12", "13", "n.a."], {"kind": "numeric", "lower": "TODO", "upper": "TODO", "missing": "category"}),
        ("town", ["Bern", " bern", "Genf"], {"kind": "unordered", "categories": ["Bern", "Genf"]}),
    ],
)
def test_a_column_is_described_by_what_its_cells_look_like(
    tmp_path: Path, name: str, cells: list[object], found: dict[str, object]
) -> None:
    described = drafted(tmp_path, table(other=cycle(1, 2, 3), **{name: cycle(*cells)}))[name]
    assert {key: described[key] for key in found} == found
    assert described["missing"] == found.get("missing", "refuse")


@given(st.integers(1, 10**6), st.integers(-(10**6), 10**6), st.randoms(use_true_random=False))
def test_a_draft_is_the_same_whatever_the_extremes_of_the_data_are(
    tmp_path_factory: pytest.TempPathFactory, width: int, shift: int, random: object
) -> None:
    folder = tmp_path_factory.mktemp("draft")
    texts = []
    for scale, offset in ((1, 0), (width, shift)):
        path = folder / f"{scale}-{offset}.csv"
        numbers = {name: np.arange(N_ROWS) * scale + offset for name in ("amount", "age", "percentage", "year")}
        table(**numbers).to_csv(path, index=False)
        texts.append(draft_schema(read_raw(path), path, Hints(id="id")).text())
    assert texts[0] == texts[1]


def test_a_bound_that_follows_the_data_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: proposals made from the cells."""
    texts = []
    for scale in (1, 7):
        path = tmp_path / f"{scale}.csv"
        cells = np.arange(N_ROWS) * scale
        table(amount=cells).to_csv(path, index=False)
        monkeypatch.setitem(PROPOSALS, "amount", (int(cells.min()), int(cells.max())))
        texts.append(draft_schema(read_raw(path), path, Hints(id="id")).text())
    assert texts[0] != texts[1]


def test_rare_categories_and_their_spelling_are_not_told(tmp_path: Path) -> None:
    towns = pd.Series(cycle("Bern", "Genf")).mask(np.arange(N_ROWS) < 9, "Witnessed")
    columns = drafted(tmp_path, table(town=towns))
    assert columns["town"] == {"kind": "unordered", "categories": ["Bern", "Genf"], "other": True, "missing": "refuse"}


def test_what_cannot_serve_is_left_out_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    table(note=[f"said {row}" for row in range(N_ROWS)], same=1, town=cycle("a", "b")).to_csv(path, index=False)
    draft = draft_schema(read_raw(path), path, Hints())
    assert draft.ignore == ["note", "same"]
    assert list(draft.columns) == ["town"]
    assert "note  # text, or a key" in draft.text()


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_separator_and_encoding_are_found(tmp_path: Path, sep: str, encoding: str) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    table(town=cycle("Zürich", "Genève"), amount=cycle(1, 2.5)).to_csv(path, index=False, sep=sep, encoding=encoding)
    write_schema(path, target, Hints(bounds={"amount": (0, 10)}))
    schema, ignore = read_schema(target)
    assert schema.format.sep == sep
    read = read_table(path, schema, ignore=ignore, needs_label=False)
    assert read.frame["town"].tolist() == cycle("Zürich", "Genève")
    assert read.frame["amount"].tolist() == cycle(1, 2.5)


@pytest.mark.parametrize(
    ("cells", "sep", "values"),
    [
        (["1,234.5", "7"], ";", [1234.5, 7]),
        (["1.234,5", "7"], ";", [1234.5, 7]),
        (["1.234,5", "7"], ",", [1234.5, 7]),
        (["1 234,5", "7,0"], ";", [1234.5, 7]),
        (["0,5", "7"], ";", [0.5, 7]),
        (["$1,234", "-$7"], ",", [1234, -7]),
        (["1.234,00 €", "7,00 €"], ";", [1234, 7]),
        (["1'234.5", "7"], ";", [1234.5, 7]),
        (["0.5", "7"], ",", [0.5, 7]),
        (["0,582", "1,234"], "\t", [0.582, 1.234]),
        (["0,582", "1,234"], ",", [0.582, 1.234]),
        (["-0,582", "1,234"], "|", [-0.582, 1.234]),
        (["0.582", "1.234"], ";", [0.582, 1.234]),
        (["1,234", "950"], "\t", [1234, 950]),
        (["1,234", "1,234,567"], ",", [1234, 1234567]),
        (["1.234", "1.234.567"], ";", [1234, 1234567]),
        (["1,234", "1234,5"], "\t", [1.234, 1234.5]),
    ],
)
def test_the_way_numbers_are_written_is_found(tmp_path: Path, cells: list[str], sep: str, values: list[float]) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    table(amount=cycle(*cells)).to_csv(path, index=False, sep=sep)
    write_schema(path, target, Hints(bounds={"amount": (-10, 10_000_000)}))
    schema, ignore = read_schema(target)
    assert read_table(path, schema, ignore=ignore, needs_label=False).frame["amount"].tolist() == cycle(*values)


COMMA = {"decimal": "TODO: . or ,", "thousands": "TODO: , or none"}
POINT = {"decimal": "TODO: . or ,", "thousands": "TODO: none or ."}


@pytest.mark.parametrize(
    ("cells", "sep", "marks"),
    [
        (["1,234", "2,500"], "\t", COMMA),
        (["1,234", "-2,500"], ",", COMMA),
        (["1,234", "2,500"], ";", COMMA),
        (["€ 1,234", "2,500 €"], "|", COMMA),
        # Zero may stand for a missing number; whole numbers of four digits have no mark of thousands.
        (["1,234", "0"], "\t", COMMA),
        (["1,234", "950", "1500"], "\t", COMMA),
        (["1,234", "9" * 5000], "\t", COMMA),
        (["1,234", "950"], ";", COMMA),
        (["1.234", "2.500"], ",", POINT),
        (["1.234", "950"], ";", POINT),
    ],
)
@pytest.mark.parametrize("is_label", [False, True])
def test_marks_that_may_mean_a_thousand_times_as_much_are_left_to_the_owner(
    tmp_path: Path, cells: list[str], sep: str, marks: dict[str, str], is_label: bool
) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    table(amount=cycle(*cells), town=cycle("a", "b")).to_csv(path, index=False, sep=sep)
    hints = Hints(label="amount") if is_label else Hints(bounds={"amount": (-10_000, 10_000)})
    draft = write_schema(path, target, hints)
    assert {key: draft.keys["reader"][key] for key in draft.open_marks} == marks
    with pytest.raises(ConfigError, match="`reader` has a TODO under decimal, thousands"):
        read_schema(target)


@pytest.mark.parametrize(
    ("cell", "decimal", "thousands", "value"),
    [("1,234", ".", ",", 1234), ("1,234", ",", "", 1.234), ("1.234", ".", "", 1.234), ("1.234", ",", ".", 1234)],
)
def test_a_draft_reads_numbers_by_the_marks_that_its_owner_writes(
    tmp_path: Path, cell: str, decimal: str, thousands: str, value: float
) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    table(amount=cycle(cell, "2" + cell[1:])).to_csv(path, index=False)
    write_schema(path, target, Hints(bounds={"amount": (0, 10_000)}))
    document = yaml.safe_load(target.read_text())
    for key, mark in (("decimal", decimal), ("thousands", thousands)):
        assert (mark or "none") in document["reader"][key].split()
        document["reader"][key] = mark
    target.write_text(yaml.safe_dump(document))
    schema, ignore = read_schema(target)
    assert read_table(path, schema, ignore=ignore, needs_label=False).frame["amount"].iloc[0] == value


def test_marks_of_ids_and_of_other_columns_leave_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    keys = [f"{1 + row // 100},{row:03}" for row in range(N_ROWS)]
    for frame in (
        pd.DataFrame({"id": keys, "spend": cycle("7", "9")}),
        table(weight=cycle("1,234", "2,500"), share=cycle("0,5", "7")),
        table(revenue=cycle("1,234", "2,500"), price=cycle("1,999", "950")),
    ):
        frame.to_csv(path, index=False, sep="\t")
        assert draft_schema(read_raw(path), path, Hints(id="id")).open_marks == []
    table(weight=[1.125 + row % 2 for row in range(N_ROWS)]).to_parquet(tmp_path / "data.parquet")
    draft = draft_schema(read_raw(tmp_path / "data.parquet"), tmp_path / "data.parquet", Hints())
    assert "reader" not in draft.keys


PRICES = [f"{1 + row % 9}.{100 + 7 * row},{row % 90 + 10}" for row in range(N_ROWS)]
AMOUNTS, CODES = cycle("6.267", "9.070", "1.249"), cycle("1.0", "2.0", "3")


@pytest.mark.parametrize("has_bounds", [False, True])
@pytest.mark.parametrize("prices", [PRICES, cycle("3.184,81", "204,87", "82,64")], ids=["many", "few"])
def test_a_column_that_only_the_second_marks_read_is_not_left_out(
    tmp_path: Path, prices: list[str], has_bounds: bool
) -> None:
    """It is what tells the owner which of the two are meant."""
    path = tmp_path / "data.csv"
    table(price=prices, amount=AMOUNTS, code=CODES, town=cycle("a", "b")).to_csv(path, index=False, sep=";")
    draft = draft_schema(read_raw(path), path, Hints(bounds={"price": (0, 5000)} if has_bounds else {}))
    assert {key: draft.keys["reader"][key] for key in draft.open_marks} == POINT
    assert draft.ignore == []
    assert [draft.columns[name]["kind"] for name in ("price", "amount", "code")] == ["numeric"] * 3
    assert draft.columns["price"]["lower"] == (0 if has_bounds else "TODO")
    assert draft.notes["price"].endswith("numbers by the second marks alone")
    assert draft.notes["code"] == "public bounds; numbers by the first marks alone"
    assert draft.notes["amount"] == "public bounds"


def test_a_label_that_only_the_second_marks_read_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    table(price=PRICES, amount=AMOUNTS, code=CODES).to_csv(path, index=False, sep=";")
    draft = draft_schema(read_raw(path), path, Hints(label="price"))
    assert (draft.objective, draft.open_marks) == ("reg:squarederror", ["decimal", "thousands"])


def test_where_no_marks_are_open_the_first_ones_alone_read_numbers(tmp_path: Path) -> None:
    """The numbers that the two formats read otherwise are the record key's."""
    path, keys = tmp_path / "data.csv", [f"{1 + row // 100}.{row:03}" for row in range(N_ROWS)]
    pd.DataFrame({"id": keys, "price": PRICES, "code": CODES}).to_csv(path, index=False, sep=";")
    raw = read_raw(path)
    assert raw.doubtful == {"id"}
    draft = draft_schema(raw, path, Hints(id="id"))
    assert (draft.open_marks, draft.ignore) == ([], ["price"])
    assert draft.notes["code"] == "public bounds"


@pytest.mark.parametrize(
    ("cells", "positive", "keys"),
    [
        (["yes", "no", "no"], None, {"positive": "yes"}),
        ([">50K", "<=50K", "<=50K"], None, {"positive": ">50K"}),
        ([">50K", "<=50K", "<=50K"], "<=50K", {"positive": "<=50K"}),
        (["bad", "good", ""], "bad", {"positive": "bad", "missing_label": "drop"}),
        ([0, 1], None, {}),
        ([0.0, 1.0, ""], None, {"missing_label": "drop"}),
        ([1.5, 2.5, 3.5], None, {}),
    ],
)
def test_labels_of_words_are_described(
    tmp_path: Path, cells: list[object], positive: str | None, keys: dict[str, str]
) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    table(y=cycle(*cells), town=cycle("a", "b")).to_csv(path, index=False)
    draft = write_schema(path, target, Hints(label="y", positive=positive))
    assert {key: draft.keys[key] for key in draft.keys if key != "reader"} == keys
    schema, ignore = read_schema(target)
    labels = read_table(path, schema, ignore=ignore, needs_label=True).labels
    assert labels is not None
    number = {"yes": 1.0, "no": 0.0, ">50K": 1.0, "<=50K": 0.0, "bad": 1.0, "good": 0.0}
    if positive == "<=50K":
        number |= {">50K": 0.0, "<=50K": 1.0}
    expected = [float(number.get(str(cell), cell)) for cell in cycle(*cells) if cell != ""]  # type: ignore[arg-type]
    assert labels.tolist() == expected
    assert draft.objective == ("reg:squarederror" if 3.5 in cells else "binary:logistic")


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("cells", "positive", "remark"),
    [
        (["sick", "well", "well"], "sick", "the rarer of the two"),
        (["sick", "well"], "sick", "both are as frequent: check it"),
        # Words of truth that both mean true.
        (["true", "y"], "true", "both are as frequent: check it"),
    ],
)
def test_which_label_is_proposed_does_not_depend_on_the_order_of_rows(
    tmp_path: Path, cells: list[str], positive: str, remark: str, is_reversed: bool
) -> None:
    path = tmp_path / "data.csv"
    rows = table(y=cycle(*cells), town=cycle("a", "b"))
    rows[:: -1 if is_reversed else 1].to_csv(path, index=False)
    assert f"positive: {flow(positive)}  # {remark}" in draft_schema(read_raw(path), path, Hints(label="y")).text()


@pytest.mark.parametrize(
    ("cells", "given", "positive"),
    [
        (["sick", "well", "well"], None, "TODO: sick or well"),
        (["sick", " Sick ", "well"], None, "TODO: Sick or well"),
        (["very  sick", "well"], None, "TODO: very sick or well"),
        (["sick", "well", "well"], "well", "well"),
        (["no", "no", "yes"], None, "yes"),
        (["no", "yes", "yes"], None, "yes"),
        (["y", "true", "true"], None, "TODO: true or y"),
    ],
)
def test_among_owners_no_label_is_proposed_that_follows_from_the_rows_of_one(
    tmp_path: Path, cells: list[str], given: str | None, positive: str
) -> None:
    path = tmp_path / "data.csv"
    table(y=cycle(*cells), town=cycle("a", "b")).to_csv(path, index=False)
    draft = draft_schema(read_raw(path), path, Hints(label="y", positive=given, is_among_owners=True))
    assert draft.keys["positive"] == positive
    assert draft.is_label_open is positive.startswith("TODO")
    assert ("the same at all owners" in draft.text()) is draft.is_label_open


@pytest.mark.parametrize(
    ("frame", "hints", "words"),
    [
        (table(y=cycle("a", "b", "c")), Hints(label="y"), "3 different words: give the positive one with --positive"),
        (table(), Hints(label="colour"), "no column 'colour'; its columns are id"),
        (table(town=cycle("a", "b")), Hints(bounds={"town": (0, 1)}), "not all numbers or all dates: it holds"),
        (table(note="same"), Hints(), "has no column that may serve beside 'id'"),
        (table(x=[f"{row}-" for row in range(N_ROWS)]), Hints(bounds={"x": (0, 1)}), "cells such as 9-. Nothing"),
        (pd.DataFrame({"x": cycle(1, 2)}), Hints(), "name the record key with --id"),
        (table(y=cycle(0, 1)), Hints(id="y", label="y"), "column 'y' cannot be both the id and the label"),
        (pd.DataFrame({"y": range(N_ROWS)}), Hints(label="y"), "name the record key with --id"),
        (table(y=cycle("a", "b")), Hints(label="y", positive="c"), "label column 'y' holds no 'c', as --positive"),
        (table(y=cycle(0, 1)), Hints(label="y", positive="yes"), "label column 'y' holds no 'yes'"),
        (table(x=cycle(3, 4)), Hints(bounds={"x": (5, 1)}), "column 'x': bounds must be finite with lower < upper"),
        (table(x=cycle(3, 4)), Hints(bounds={"x": (0, float("inf"))}), "column 'x': bounds must be finite"),
        (table(x=cycle(3, 4)), Hints(bounds={"x": (date(2020, 1, 1), date(2021, 1, 1))}), "lower must be a number"),
        (table(x=cycle("2020-05-05", "2020-05-06")), Hints(bounds={"x": (1, 2)}), "lower must be a date"),
        (table(**{"a\nb": cycle(1, 2)}), Hints(), "the name of column 2 holds a line break or a control character"),
    ],
)
def test_what_cannot_be_drafted_is_said(tmp_path: Path, frame: pd.DataFrame, hints: Hints, words: str) -> None:
    with pytest.raises((ConfigError, SchemaError), match=words):
        drafted(tmp_path, frame, hints)


def left_out(folder: Path, cells: list[str], why: str) -> Draft:
    """The draft of a table that leaves out a column of these cells, for this reason."""
    table(x=cells, town=cycle("a", "b")).to_csv(folder / "data.csv", index=False)
    draft = draft_schema(read_raw(folder / "data.csv"), folder / "data.csv", Hints())
    assert (list(draft.columns), draft.ignore) == (["town"], ["x"])
    assert why in draft.notes["x"]
    return draft


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([f"({row}.50)" for row in range(N_ROWS)], "cells such as (9.99)"),
        ([f"({row % 30}.50)" for row in range(N_ROWS)], "cells such as (9.99)"),
        ([f"word {row % 30}" for row in range(N_ROWS)], "no category of 10 records"),
    ],
)
def test_the_reason_why_a_column_is_left_out_shows_the_shape_of_a_cell(
    tmp_path: Path, cells: list[str], why: str
) -> None:
    left_out(tmp_path, cells, why)


DAYS = [f"{1 + row % 28:02}.{1 + row % 12:02}.{2000 + row % 20}" for row in range(N_ROWS)]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (
            ["k.A."] * 11 + DAYS[11:],
            "dates but for at most a tenth of the cells, written a.A.: list such texts under `na_values` of `reader`, "
            "which reads these cells as empty, and describe the column as {kind: date, format: '%d.%m.%Y'} with bounds "
            "and `missing`",
        ),
        (
            ["offen"] * 12 + [f"{row}.5" for row in range(12, N_ROWS)],
            "numbers but for at most a tenth of the cells, written aaaaa:",
        ),
        (["offen"] * 12 + [f"{day} 10:30" for day in DAYS[12:]], "{kind: datetime, format: '%d.%m.%Y %H:%M'}"),
        # Of texts that are rare, or too many, nothing is told.
        (["k.A."] * 9 + DAYS[9:], "cells such as a.A."),
        (["k.A."] * 13 + DAYS[13:], "cells such as a.A."),
        (["k.A."] * 11 + ["0815"] + DAYS[12:], "cells such as a.A."),
    ],
)
def test_a_column_of_dates_but_for_a_few_texts_is_left_out_with_the_cure(
    tmp_path: Path, cells: list[str], why: str
) -> None:
    draft = left_out(tmp_path, cells, why)
    assert yaml.safe_load(draft.text())["ignore"] == ["x"]


@pytest.mark.parametrize("cells", [["31/01/2020", "01/31/2020"], ["31/01/2020", "2020-01-31", "soon"]])
def test_days_and_months_that_could_change_places_are_no_dates(tmp_path: Path, cells: list[str]) -> None:
    assert drafted(tmp_path, table(since=cycle(*cells)))["since"]["kind"] == "unordered"


def test_a_draft_of_two_formats_reads_both(tmp_path: Path) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    table(since=cycle("2020-01-31", "31.01.2020", " 01.02.2020")).to_csv(path, index=False)
    write_schema(path, target, Hints(bounds={"since": (date(2000, 1, 1), date(2030, 1, 1))}))
    schema, ignore = read_schema(target)
    days = read_table(path, schema, ignore=ignore, needs_label=False).frame["since"]
    assert days.tolist() == cycle(18292, 18292, 18293)


def test_lines_of_separators_are_no_records(tmp_path: Path) -> None:
    path, target = tmp_path / "data.csv", tmp_path / "schema.yaml"
    lines = table(amount=cycle(1, 2), town=cycle("a", "b")).to_csv(index=False).splitlines()
    path.write_text("\n".join([*lines[:2], ",,", *lines[2:], ",,", ""]))
    write_schema(path, target, Hints(bounds={"amount": (0, 10)}))
    schema, ignore = read_schema(target)
    assert len(read_table(path, schema, ignore=ignore, needs_label=False).ids) == N_ROWS
    path.write_text(path.read_text().replace("k119,2", "k119,two"))
    with pytest.raises(DataError) as caught, showing_misfits(path, schema):
        raise DataError("column 'amount' holds a cell that is no number")
    assert "line 122" in str(caught.value.__notes__)


@pytest.mark.parametrize(
    ("frame", "beside", "found"),
    [
        (table(visitor=range(N_ROWS)), {"visitor"}, "visitor"),
        (table(visitor=range(N_ROWS)), {"town"}, "id"),
        (table(ID=range(N_ROWS)).drop(columns="id").reset_index(names=""), set(), "ID"),
        (table(visitor=range(N_ROWS)).assign(id=[f"k{max(row, 5)}" for row in range(N_ROWS)]), set(), "visitor"),
        (table(town=cycle(1, 2)).assign(id=[f"k{max(row, 5)}" for row in range(N_ROWS)]), set(), "id"),
    ],
)
def test_the_record_key_is_found(tmp_path: Path, frame: pd.DataFrame, beside: set[str], found: str) -> None:
    path = tmp_path / "data.csv"
    frame.assign(place=cycle("a", "b")).to_csv(path, index=False)
    assert draft_schema(read_raw(path), path, Hints(beside=frozenset(beside))).id == found


def test_a_parquet_file_is_described_too(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    dates = pd.Series(pd.date_range("2020-01-01", periods=N_ROWS)).dt.date
    table(age=cycle(30, 40), since=dates, is_new=cycle(True, False)).to_parquet(path)
    draft = draft_schema(read_raw(path), path, Hints())
    assert {name: column["kind"] for name, column in draft.columns.items()} == {
        "age": "numeric",
        "since": "date",
        "is_new": "boolean",
    }

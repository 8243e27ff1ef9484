"""The `reader` section of a schema file, and the descriptions of columns whose cells are no plain numbers or words."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from opboost.errors import SchemaError, shown
from opboost.schema import ColumnSchema, Kind, TableSchema, column_from_mapping
from opboost.table_format import OTHER, ColumnFormat, TableFormat, plain_word
from parties.config.section import Section
from parties.storage.cell_formats import MOST_PATTERNS, UNITS_S, DecimalMark, ThousandsMark, is_time_pattern
from parties.tables.cells import empty_texts

TRUTH = ("false", "true")

# Name of what words of labels mean, which owners of rows agree on and a model's later runs keep: else labels may be
# opposite, for words mean what the schema says.
LABEL_TERM = "`positive` and `negative` of the schema"

# Begins what a drafted schema leaves to its owner.
TODO = "TODO"


def _known_encoding(name: str) -> str:
    try:
        "a".encode(codecs.lookup(name).name)
    except (LookupError, TypeError, ValueError):
        raise ValueError("must be an encoding of text, such as utf-8, latin-1, cp1252 or utf-16") from None
    return codecs.lookup(name).name


def _one_character(sep: str) -> str:
    if sep == "tab":
        return "\t"
    if len(sep.encode()) != 1 or sep.isalnum() or sep == '"':
        raise ValueError("must be one character of ASCII that is no letter, digit or quote, or `tab`")
    return sep


def _listed(value: object) -> object:
    """One text, or a list of texts; YAML reads codes as numbers, and yes and no as truth values."""
    texts = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(text, (str, int, float)) and not isinstance(text, bool) for text in texts):
        raise ValueError("must be texts; put words like yes, no and null in quotes")
    return tuple(map(str, texts))


Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class ReaderSection(Section):
    """How the texts of a data file are written; the defaults are those of files that programs write."""

    sep: Annotated[str, AfterValidator(_one_character)] = Field(",", description="Separator of a CSV file, or `tab`.")
    encoding: Annotated[str, AfterValidator(_known_encoding)] = Field("utf-8", description="Encoding of a CSV file.")
    decimal: DecimalMark = Field(".", description="Decimal mark.")
    thousands: ThousandsMark = Field(
        "", description="Mark between groups of three digits, of which the first does not begin with 0."
    )
    currency: Texts = Field((), description="Symbols beside numbers that are passed over.")
    na_values: Texts = Field(
        (),
        description="Texts, numbers and times that mean an empty cell, as `n/a` or -999; ids count as they are "
        "written.",
    )
    true_values: Texts = Field(TableFormat().true_values, description="Texts that mean true, in any case.")
    false_values: Texts = Field(TableFormat().false_values, description="Texts that mean false, in any case.")
    strip: bool = Field(False, description="Whether white space around categories is passed over.")
    ignore_case: bool = Field(False, description="Whether the case of categories is passed over.")

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        TableFormat(**self.model_dump()).check_marks()
        return self


class ReadingSection(Section):
    """The keys of a schema file about how cells and labels are read."""

    reader: ReaderSection = Field(ReaderSection(), description="How the texts of the data file are written.")
    positive: Texts | bool = Field(
        (),
        description="Labels that are read as 1, in any case; yes for words of truth. The same at all owners of rows.",
    )
    negative: Texts | bool = Field((), description="Labels that are read as 0; by default the one other that there is.")
    missing_label: Literal["refuse", "drop"] = Field(
        "refuse", description="Whether a record without a label is an error, or left out of training."
    )

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if self.negative != () and self.positive == ():
            raise ValueError("`negative` goes with `positive`")
        positive, negative = (set(map(plain_word, self._labels(setting))) for setting in (self.positive, self.negative))
        if shared := positive & negative:
            raise ValueError(f"{', '.join(sorted(shared))} stands under `positive` and under `negative`")
        return self

    def _labels(self, given: tuple[str, ...] | bool) -> tuple[str, ...]:
        """Labels as they stand; yes and no mean all texts for true and for false."""
        if isinstance(given, tuple):
            return given
        return ("true", *self.reader.true_values) if given else ("false", *self.reader.false_values)

    def format(self, columns: Mapping[str, ColumnFormat]) -> TableFormat:
        """The table format."""
        labels: dict[str, Any] = {"positive": self._labels(self.positive), "negative": self._labels(self.negative)}
        special = {name: form for name, form in columns.items() if form != ColumnFormat()}
        drops = self.missing_label == "drop"
        return TableFormat(**self.reader.model_dump(), **labels, columns=special, drops_unlabelled=drops)


def is_open(value: object) -> bool:
    """Whether a value of a schema file is still to be written down."""
    return isinstance(value, str) and value.startswith(TODO)


def open_keys(described: Mapping[str, object]) -> list[str]:
    """The keys of a description whose values are still to be written down."""
    return [str(key) for key, value in described.items() if is_open(value)]


def check_complete(columns: Mapping[object, Mapping[str, Any]], reader: object = None, positive: object = None) -> None:
    """Refuse a schema that is still a draft, by its `columns`, its `reader` section and its `positive` label.

    Raises
    ------
    SchemaError
    """
    still = [str(name) for name, column in columns.items() if open_keys(column)]
    if still:
        raise SchemaError(
            f"columns {', '.join(still)} have a {TODO} where a public bound or a format belongs: write down what is "
            "generally known, never the data's own lowest and highest value"
        )
    if isinstance(reader, Mapping) and (marks := open_keys(reader)):
        raise SchemaError(
            f"`reader` has a {TODO} under {', '.join(marks)}: write down the marks that the numbers of the file have"
        )
    if is_open(positive):
        raise SchemaError(f"`positive` has a {TODO}: write down the label that means 1, the same at all owners of rows")


def described_column(name: str, description: Mapping[str, Any]) -> tuple[ColumnSchema, ColumnFormat]:
    """Read a column's description in a schema file, of any kind.

    Raises
    ------
    SchemaError
    """
    given = dict(description)
    kind, form = given.get("kind"), ColumnFormat()
    if kind in ("date", "datetime"):
        given, form = _times(name, given)
    elif kind == "boolean":
        given |= {"kind": "unordered", "categories": given.get("categories", TRUTH)}
        if "fill" in given:
            given["fill"] = str(given["fill"]).lower()
        form = ColumnFormat(is_boolean=True)
        if given["categories"] != TRUTH:
            raise SchemaError(f"column {name!r} is boolean and has the categories false and true: leave them out")
    elif kind in ("ordered", "unordered") and isinstance(given.get("categories"), list) and "" in given["categories"]:
        raise SchemaError(
            f"column {name!r} lists an empty text: an empty text is an empty cell; say `missing: category`"
        )
    elif kind in ("ordered", "unordered") and "other" in given:
        form = ColumnFormat(has_other=_truth(name, "other", given.pop("other")))
        listed = given.get("categories", ())
        if form.has_other and isinstance(listed, list) and OTHER not in listed:
            if kind == "ordered":
                raise SchemaError(f"column {name!r} is ordered: list `{OTHER}` at its place among the categories")
            given["categories"] = [*listed, OTHER]
    return column_from_mapping(name, given), form


def _truth(name: str, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SchemaError(f"column {name!r}: {key} must be true or false; found {shown(value)}")
    return value


def _times(name: str, given: dict[str, Any]) -> tuple[dict[str, Any], ColumnFormat]:
    kind = given["kind"]
    unit, stated_format = given.pop("unit", "day" if kind == "date" else "second"), given.pop("format", ())
    patterns = tuple(stated_format) if isinstance(stated_format, (list, tuple)) else (stated_format,)
    if not isinstance(unit, str) or unit not in UNITS_S:
        raise SchemaError(f"column {name!r}: unit must be one of {', '.join(UNITS_S)}; found {shown(unit)}")
    is_short = len(patterns) <= MOST_PATTERNS
    if not (is_short and all(isinstance(pattern, str) and is_time_pattern(pattern) for pattern in patterns)):
        raise SchemaError(
            f"column {name!r}: format must be a pattern such as '%d.%m.%Y', or a list of such, {MOST_PATTERNS} at "
            f"most; found {shown(stated_format)}"
        )
    for key in ("lower", "upper", "fill"):
        if key in given:
            given[key] = _units(name, key, given[key], UNITS_S[unit])
    given |= {"kind": Kind.NUMERIC.value, "step": given.get("step", 1)}
    return given, ColumnFormat(unit_s=UNITS_S[unit], patterns=patterns)


def _units(name: str, key: str, value: object, unit_s: int) -> int:
    """A date or a time as whole units since 1970."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise SchemaError(f"column {name!r}: {key} must be a date such as 2024-05-31; found {shown(value)}")
    value = value if value.tzinfo else value.replace(tzinfo=UTC)
    return int(value.timestamp() // unit_s)


def check_words(schema: TableSchema) -> None:
    """Refuse categories that read the same by the table's format, and categories and labels that it takes for empty.

    Raises
    ------
    SchemaError
    """
    form = schema.format
    for column in schema.columns:
        if len({form.words(category) for category in column.categories}) < len(column.categories):
            raise SchemaError(f"column {column.name!r} lists categories that `strip` or `ignore_case` make the same")
    listed = {
        one
        for column in schema.columns
        for one in column.categories
        if not (form.of(column.name).is_boolean or (one == OTHER and form.of(column.name).has_other))
    }
    # Words of truth stand there whether a column has them or not.
    labels = {*form.positive, *form.negative} - {*TRUTH, *form.true_values, *form.false_values}
    empty = empty_texts(form)
    if both := sorted(word for word in listed | labels if word.strip() in empty):
        raise SchemaError(
            f"{', '.join(map(shown, both))} is listed as a category or a label, and means an empty cell by "
            "`na_values`; leave it out there or here"
        )

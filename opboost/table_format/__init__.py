"""Table format: the public conventions by which the texts of a data file are read as numbers, times and categories."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opboost.errors import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """Format of a column's cells, where its kind alone does not say how to read them.

    Attributes
    ----------
    unit_s : int or None
        Of times, which are read as whole units of so many seconds since 1970-01-01, UTC.
    patterns : tuple of str
        How times are written, as `strptime` takes it; the first one that fits counts, and without any ISO 8601.
    is_boolean : bool
        Whether cells are truth values, read as the categories ``false`` and ``true``.
    has_other : bool
        Whether a category that the schema does not list is read as `OTHER`.
    """

    unit_s: int | None = None
    patterns: tuple[str, ...] = ()
    is_boolean: bool = False
    has_other: bool = False

    @property
    def kind(self) -> str | None:
        """The kind that a schema file calls such cells; None for numbers and listed categories.

        Times are dates where their unit is the day.
        """
        if self.unit_s is not None:
            return "date" if self.unit_s % 86400 == 0 else "datetime"
        return "boolean" if self.is_boolean else None

    @property
    def written(self) -> str:
        """How times are written, in words: the patterns, or an example of ISO 8601."""
        example = "2024-05-31" if self.kind == "date" else "2024-05-31 14:30:00"
        return " or ".join(map(shown, self.patterns)) or example


def plain_word(text: str) -> str:
    """A label or a truth value in the form in which it is compared."""
    return " ".join(text.split()).removesuffix(".0").casefold()


# The category of cells whose own is not listed.
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFormat:
    """Format of a table's texts; the default is that of CSV files as programs write them.

    Attributes
    ----------
    sep, encoding : str
        Of a CSV file.
    decimal, thousands : str
        Marks in numbers; thousands are grouped by three digits.
    currency : tuple of str
        Symbols before or after a number that are passed over.
    na_values : tuple of str
        Texts that mean an empty cell; of numbers and times, all that have the same value.
    true_values, false_values : tuple of str
        Truth values, in any case.
    strip, ignore_case : bool
        Whether white space around and between the words of a category counts, and whether its case does.
    columns : Mapping of str to ColumnFormat
        Formats of single columns.
    positive, negative : tuple of str
        Labels that are read as 1, and as 0; without `negative`, the one other label that there is.
    drops_unlabelled : bool
        Whether records without a label are left out of training.
    """

    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""
    currency: tuple[str, ...] = ()
    na_values: tuple[str, ...] = ()
    true_values: tuple[str, ...] = ("true", "yes", "y", "t", "1")
    false_values: tuple[str, ...] = ("false", "no", "n", "f", "0")
    strip: bool = False
    ignore_case: bool = False
    columns: Mapping[str, ColumnFormat] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    drops_unlabelled: bool = False

    @property
    def has_numbers(self) -> bool:
        """Whether numbers are written in another way than programs do."""
        return self.decimal != "." or bool(self.thousands or self.currency)

    @property
    def changes_cells(self) -> bool:
        """Whether any cell may have to be read from its text."""
        cleans = bool(self.columns or self.na_values or self.positive) or self.strip or self.ignore_case
        return cleans or self.has_numbers

    @property
    def label_words(self) -> tuple[list[str], list[str]]:
        """What labels mean: those that are read as 1, and as 0, in the form in which they are compared."""
        positive, negative = (sorted(set(map(plain_word, texts))) for texts in (self.positive, self.negative))
        return positive, negative

    def check_marks(self) -> None:
        """Refuse marks and words that would be taken for others.

        Raises
        ------
        ValueError
        """
        if self.decimal == self.thousands:
            raise ValueError("`decimal` and `thousands` must differ")
        if both := set(map(plain_word, self.true_values)) & set(map(plain_word, self.false_values)):
            raise ValueError(f"{', '.join(sorted(both))} stands under `true_values` and under `false_values`")
        marks = {"+", "-", self.decimal, self.thousands} - {""}
        if odd := [one for one in self.currency if one.strip() in marks or re.search(r"\d", one)]:
            raise ValueError(f"{', '.join(map(shown, odd))} under `currency` would be passed over as a part of numbers")

    def of_cells(self, names: Collection[str]) -> TableFormat:
        """What is said about the cells of these columns, without what is said about files and labels."""
        others: dict[str, Any] = {"sep": ",", "encoding": "utf-8", "positive": (), "negative": ()}
        columns = {name: form for name, form in self.columns.items() if name in names}
        return replace(self, **others, columns=columns, drops_unlabelled=False)

    def of(self, column: str) -> ColumnFormat:
        """The format of a column."""
        return self.columns.get(column, ColumnFormat())

    def words(self, text: str) -> str:
        """A category's text in the form in which it is compared."""
        text = " ".join(text.split()) if self.strip else text
        return text.casefold() if self.ignore_case else text

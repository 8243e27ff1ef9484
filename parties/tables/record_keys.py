"""Keys by which records are compared with another party's, where its id does not name them the same way.

A key is made of one or several columns, each brought to a normal form: what two files may write in two ways does not
count. A record with an empty part has no such key. Of several keys, in order of trust, a record is compared by the
first that matches; the id still names it in its own party's ledger and predictions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.errors import TableError
from parties.tables.record_ids import canonical, join, optional_texts
from parties.tables.sorted_ids import Duplicates

KeyColumns = Mapping[str, tuple[str, ...]]
"""The columns of a key, each with its rules: ``case``, ``spaces``, ``email``, or ``phone`` with a country code."""

RULE_PATTERN = r"^(case|spaces|email|phone [1-9][0-9]{0,2})$"

KeyTexts = NDArray[np.object_]
"""A key of every row; the empty text where a row has none."""

_EMAIL = re.compile(r"[^@]+@[^@]+")


def rules_in_words(keys: Sequence[KeyColumns]) -> str:
    """The rules of all keys, which must be the same on both sides; columns are not named."""
    return "; ".join(", ".join("+".join(sorted(rules)) or "as is" for rules in key.values()) for key in keys)


def normal_form(text: str, rules: Sequence[str]) -> str:
    """A cell as it counts in a key; empty if it is no e-mail address or telephone number where one is meant."""
    text = canonical(text)
    # In this order, since compatibility forms may hold spaces.
    for rule in sorted(rules):
        match rule.split():
            case ["case"]:
                text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
            case ["email"]:
                text = normal_form(text, ["case", "spaces"]).rstrip(".")
                text = text if _EMAIL.fullmatch(text) else ""
            case ["phone", country]:
                text = _telephone(unicodedata.normalize("NFKC", text), country)
            case _:
                text = "".join(text.split())
    return text


def read_keys(
    frame: pd.DataFrame, keys: Sequence[KeyColumns], path: Path, *, duplicates: Duplicates
) -> tuple[KeyTexts, ...]:
    """All keys of a table's rows.

    Raises
    ------
    TableError
        If a cell cannot be part of a key, or a key in normal form is that of several rows and `duplicates` says
        ``refuse``. With any other word such rows have no such key: they are different records.
    """
    all_keys = []
    for number, columns in enumerate(keys, 1):
        parts = [
            [normal_form(text, rules) for text in optional_texts(frame[name], name, path)]
            for name, rules in columns.items()
        ]
        texts = parts[0] if len(parts) == 1 else [join(row) if all(row) else "" for row in zip(*parts, strict=True)]
        key = np.array(texts, dtype=object)
        is_repeated = pd.Series(key).duplicated(keep=False).to_numpy() & (key != "")
        if is_repeated.any() and duplicates == "refuse":
            raise TableError(
                f"{path}: key {number} ({', '.join(columns)}) is the same in {is_repeated.sum()} of {len(key)} rows, "
                f"in its normal form ({rules_in_words([columns])}); keys must be unique, or `align.duplicates: drop` "
                "compares such rows by their other keys alone. Nothing was sent"
            )
        key[is_repeated] = ""
        all_keys.append(key)
    return tuple(all_keys)


def shared_names(number: int, key: KeyTexts) -> Iterator[str]:
    """How parties call records by the key of a number, from 1 on; keys of two numbers are never the same."""
    return (f"{number} {text}" if text else "" for text in key)


def keys_of_names(names: Iterable[str], n_keys: int) -> tuple[KeyTexts, ...]:
    """The keys of records that are to be known by these names alone."""
    numbered = [name.split(" ", 1) for name in names]
    return tuple(
        np.array([text if number == str(key) else "" for number, text in numbered], dtype=object)
        for key in range(1, n_keys + 1)
    )


def places_by_key(keys: Sequence[KeyTexts]) -> dict[str, int]:
    """The row of each name that a record may be called by."""
    return {
        name: row for number, key in enumerate(keys, 1) for row, name in enumerate(shared_names(number, key)) if name
    }


def first_names(keys: Sequence[KeyTexts]) -> pd.Index:
    """Each record by the first key that it has; one that has none is called by its row, which nobody else knows."""
    named = zip(*(shared_names(number, key) for number, key in enumerate(keys, 1)), strict=True)
    return pd.Index([next(filter(None, names), f"0 {row}") for row, names in enumerate(named)], dtype=object)


def _telephone(text: str, country: str) -> str:
    """Country code and number without leading zeros; a number without a country code has that of the rule."""
    digits = "".join(str(unicodedata.decimal(letter)) for letter in text if letter.isdecimal())
    number = digits.lstrip("0")
    if not number:
        return ""
    is_international = text.lstrip("( ").startswith("+") or digits.startswith("00")
    if is_international and not number.startswith(country):
        return number
    national = (number.removeprefix(country) if is_international else number).lstrip("0")
    return national and country + national

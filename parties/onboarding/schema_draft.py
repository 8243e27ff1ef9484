"""Schema draft: what a data file's columns look like, and a TODO for whatever only public knowledge can tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from opboost.table_format import TableFormat, plain_word
from parties.config.reader_section import TODO, described_column
from parties.errors import ConfigError
from parties.onboarding.date_formats import times_of
from parties.onboarding.dialect import LEAST_RECORDS, RawTable, reads_numbers, why_text
from parties.onboarding.schema_text import Draft
from parties.tables.data_files import named

Bound = float | date

# Bounds of common kinds of numbers, by words in a column's name.
PROPOSALS: dict[str, tuple[Any, Any]] = {
    "age": (0, 120),
    **dict.fromkeys(("percent", "percentage", "pct"), (0, 100)),
    **dict.fromkeys(("share", "ratio", "fraction", "probability"), (0, 1)),
    "year": (1900, 2100),
    "month": (1, 12),
    "weekday": (0, 7),
    "hour": (0, 24),
}

# Columns with more categories stay out; those with fewer records than `LEAST_RECORDS` go to `other`.
LISTABLE = 60

# Share of different cells in a column that may be the record key, but for records that come twice.
NEARLY = 0.9

_TRUTH = [{"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"1", "0"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Facts about a data file that its owner states.

    Attributes
    ----------
    id, label, positive : str, optional
        Record key, label column, positive label.
    bounds : mapping of str to pair
        Public bounds by column.
    beside : frozenset of str
        Names of the other party's columns, case-folded: the record key is likely to have one of them.
    is_among_owners : bool
        Whether others describe the same columns of their own rows: nothing that all must say alike follows from these.
    """

    id: str | None = None
    label: str | None = None
    positive: str | None = None
    bounds: Mapping[str, tuple[Bound, Bound]] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    is_among_owners: bool = False


def draft_schema(raw: RawTable, path: Path, hints: Hints) -> Draft:
    """Describe a file's columns.

    Raises
    ------
    ConfigError, SchemaError
        If there is no id, a column that is named does not exist, or bounds that are given are none.
    """
    names = [str(name) for name in raw.frame.columns]
    for name in (hints.id, hints.label, *hints.bounds):
        if name is not None and name not in names:
            raise ConfigError(f"{path} has no column {name!r}; its columns are {named(names)}")
    if hidden := [str(number) for number, name in enumerate(names, 1) if not name.isprintable()]:
        raise ConfigError(
            f"{path}: the name of column {', '.join(hidden)} holds a line break or a control character; rename it. "
            "Nothing was made"
        )
    if hints.id is not None and hints.id == hints.label:
        raise ConfigError(f"column {hints.id!r} cannot be both the id and the label. Nothing was made")
    texts = {name: texts_of(raw.frame[name], raw.format) for name in names}
    draft = Draft(hints.id or _id_of(texts, path, hints), hints.label)
    forms = _formats(draft, raw, texts, hints)
    if draft.label is not None:
        _describe_label(draft, texts[draft.label], forms, hints)
    cleaning: set[str] = set()
    for name in names:
        if name not in (draft.id, draft.label):
            cleaning |= _describe(draft, name, texts[name], forms, hints.bounds.get(name))
    _check_bounds(draft, hints)
    if not draft.columns:
        raise ConfigError(f"{path} has no column that may serve beside {draft.id!r}. Nothing was made")
    form = replace(_with_doubts(forms), strip="strip" in cleaning, ignore_case="ignore_case" in cleaning)
    if reader := _reader(form):
        draft.keys["reader"] = reader
    return draft


def _formats(draft: Draft, raw: RawTable, texts: Mapping[str, pd.Series], hints: Hints) -> tuple[TableFormat, ...]:
    """The file's format, and its rival's if numbers of the draft would be others by that one."""
    if raw.rival is None:
        return (raw.format,)
    trial = Draft(draft.id, draft.label)
    for name in raw.doubtful - {draft.id, draft.label}:
        _describe(trial, name, texts[name], (raw.format,), hints.bounds.get(name))
    is_open = any(column["kind"] == "numeric" for column in trial.columns.values())
    is_open |= draft.label in raw.doubtful and hints.positive is None
    return (raw.format, raw.rival) if is_open else (raw.format,)


def _with_doubts(forms: Sequence[TableFormat]) -> TableFormat:
    """The format, with a TODO for the marks if there are two formats and none is known to be meant."""
    if len(forms) == 1:
        return forms[0]
    chosen, rival = forms
    pairs = ((chosen.decimal, rival.decimal), (chosen.thousands, rival.thousands))
    decimal, thousands = (f"{TODO}: {first or 'none'} or {second or 'none'}" for first, second in pairs)
    return replace(chosen, decimal=decimal, thousands=thousands)


def _check_bounds(draft: Draft, hints: Hints) -> None:
    for name in draft.columns.keys() & hints.bounds.keys() - set(draft.open_bounds):
        described_column(name, draft.columns[name])


def _reader(form: TableFormat) -> dict[str, Any]:
    """The keys of a reader section that differ from their defaults."""
    plain = TableFormat()
    keys = ("sep", "encoding", "decimal", "thousands", "currency", "na_values", "strip", "ignore_case")
    settings = {key: getattr(form, key) for key in keys if getattr(form, key) != getattr(plain, key)}
    settings |= {key: list(value) for key, value in settings.items() if isinstance(value, tuple)}
    return settings | ({"sep": "tab"} if form.sep == "\t" else {})


def texts_of(column: pd.Series, form: TableFormat) -> pd.Series:
    """A column's cells as texts, those that mean nothing as missing."""
    texts = column.astype("string")
    return texts.mask(texts.str.strip().isin(form.na_values))


def _id_of(texts: Mapping[str, pd.Series], path: Path, hints: Hints) -> str:
    """The first column that tells all records apart: one of a name that both parties have, or that says so, if any.

    Of such a name, a column will do that repeats a tenth of its cells.
    """
    candidates = {name: column for name, column in texts.items() if name != hints.label and not _is_unnamed(name)}
    whole = [name for name, column in candidates.items() if column.notna().all()]
    shared = [name for name in whole if name.casefold() in hints.beside]
    named_so = [name for name in whole if {"id", "key", "uuid", "no", "number"} & set(_words(name))]
    for names, share in ((shared, 1), (shared, NEARLY), (named_so, 1), (whole, 1), (named_so, NEARLY)):
        for name in names:
            if texts[name].nunique() >= share * len(texts[name]):
                return name
    raise ConfigError(f"{path}: no column tells all records apart; name the record key with --id. Nothing was made")


def _is_unnamed(name: str) -> bool:
    """Whether the name is that which pandas gives a column without one."""
    return re.fullmatch(r"Unnamed: \d+", name) is not None


def _words(name: str) -> list[str]:
    return [word.casefold() for word in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name) if word]


def _describe_label(draft: Draft, texts: pd.Series, forms: Sequence[TableFormat], hints: Hints) -> None:
    present, positive = texts.dropna().str.strip(), hints.positive
    if len(present) < len(texts):
        draft.keys["missing_label"] = "drop"
    is_number = bool(_readers(present, forms))
    if positive is None and is_number:
        # Beside a missing label, programs write 0.0 and 1.0.
        are_two = {text.removesuffix(".0") for text in present.unique()} <= {"0", "1"}
        draft.objective = "binary:logistic" if are_two else "reg:squarederror"
        return
    words = _spelled(present)
    if positive is None:
        _propose_label(draft, words, hints)
    elif plain_word(positive) not in set(map(plain_word, words)):
        raise ConfigError(f"label column {draft.label!r} holds no {positive!r}, as --positive says. Nothing was made")
    else:
        draft.keys["positive"] = positive


def _propose_label(draft: Draft, words: pd.Series, hints: Hints) -> None:
    """Which of two words means 1: that of truth, or the rarer one; among owners, others may find another one rarer."""
    groups = words.groupby(words.str.casefold())
    # In whatever order the rows come, the same proposal.
    ranked = sorted((len(group), min(group), plain) for plain, group in groups)
    if len(ranked) != 2:
        raise ConfigError(
            f"label column {draft.label!r} holds {len(ranked)} different words: give the positive one with --positive, "
            "or number several classes from 0"
        )
    (n_first, first, _), (n_second, second, _) = ranked
    truth = [word for _, word, plain in ranked if plain in ("yes", "true", "y", "t")]
    if len(truth) == 1:
        draft.keys["positive"] = truth[0]
    elif hints.is_among_owners:
        draft.keys["positive"] = f"{TODO}: {' or '.join(sorted((first, second)))}"
    else:
        draft.keys["positive"] = first
        draft.remark = "  # both are as frequent: check it" if n_first == n_second else "  # the rarer of the two"


def _describe(
    draft: Draft, name: str, texts: pd.Series, forms: Sequence[TableFormat], bounds: tuple[Bound, Bound] | None
) -> set[str]:
    """Describe a column, or leave it out; returns the keys of the reader that its categories need."""
    present = texts.dropna()
    plain = present.str.strip().str.casefold()
    cleaning: set[str] = set()
    description: dict[str, Any] = {}
    if _is_unnamed(name):
        _leave_out(draft, name, "the header has no name for it")
    elif plain.nunique() < 2:
        _leave_out(draft, name, "a single value")
    elif any(set(plain.unique()) <= pair for pair in _TRUTH):
        description = {"kind": "boolean"}
    elif readers := _readers(present, forms):
        description = {"kind": "numeric", **_bounds(draft, name, bounds)}
        _note_marks(draft, name, forms, readers)
    elif times := times_of(present):
        description = times | _bounds(draft, name, bounds)
    elif plain.nunique() > LISTABLE:
        _leave_out(
            draft, name, why_text(present, forms[0], "text, or a key: more different values than categories can have")
        )
    else:
        description, cleaning = _categories_of(present)
        if not description["categories"]:
            _leave_out(draft, name, why_text(present, forms[0], f"no category of {LEAST_RECORDS} records"))
            description, cleaning = {}, set()
    if bounds is not None and "lower" not in description:
        why = draft.notes.get(name, "it holds categories")
        raise ConfigError(
            f"column {name!r} has no bounds, for its cells are not all numbers or all dates: {why}. Nothing was made"
        )
    if description:
        draft.columns[name] = {**description, "missing": "category" if len(present) < len(texts) else "refuse"}
    return cleaning


def _readers(present: pd.Series, forms: Sequence[TableFormat]) -> list[TableFormat]:
    """The formats by which all cells are numbers."""
    return [form for form in forms if reads_numbers(present.unique(), form)]


def _note_marks(draft: Draft, name: str, forms: Sequence[TableFormat], readers: Sequence[TableFormat]) -> None:
    """Tell the owner, who is to write the marks, of a column that is numbers by one of two formats alone."""
    if len(readers) < len(forms):
        _note(draft, name, f"numbers by the {'first' if forms[0] in readers else 'second'} marks alone")


def _leave_out(draft: Draft, name: str, why: str) -> None:
    draft.ignore.append(name)
    _note(draft, name, why)


def _note(draft: Draft, name: str, remark: str) -> None:
    draft.notes[name] = f"{draft.notes[name]}; {remark}" if name in draft.notes else remark


def _bounds(draft: Draft, name: str, given: tuple[Bound, Bound] | None) -> dict[str, Any]:
    proposed = next((PROPOSALS[word] for word in reversed(_words(name)) if word in PROPOSALS), None)
    lower, upper = given or proposed or (TODO, TODO)
    if given is None:
        _note(draft, name, "proposed by the name: check it" if proposed else "public bounds")
    return {"lower": lower, "upper": upper}


def _spelled(present: pd.Series) -> pd.Series:
    """White space around words does not count."""
    return present.str.split().str.join(" ")


def _categories_of(present: pd.Series) -> tuple[dict[str, Any], set[str]]:
    """Description of a column of categories, and what brings their spellings together."""
    stripped = _spelled(present)
    spelled = {"strip": bool((stripped != present).any())}
    spelled["ignore_case"] = stripped.str.casefold().nunique() < stripped.nunique()
    groups = stripped.groupby(stripped.str.casefold())
    # Of several spellings the most frequent stands for all.
    usual = {key: group.value_counts().index[0] for key, group in groups if len(group) >= LEAST_RECORDS}
    is_whole = len(usual) == groups.ngroups
    description = {"kind": "unordered", "categories": sorted(usual.values())}
    return description | ({} if is_whole else {"other": True}), {key for key, holds in spelled.items() if holds}

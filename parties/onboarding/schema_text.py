"""Text of a schema file in the making, with a comment wherever somebody has to decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from parties.config.reader_section import is_open, open_keys

WHY = (
    "# TODO stands where public bounds belong: what is generally known about the column, by law, by contract or by\n"
    "# common sense. The lowest and the highest value of the data are two people's values, so they are not taken.\n"
    "# Kinds, `missing`, `other` and what is left out follow from cells, of which one may decide: write what is known\n"
    "# in general. A passive party's show, and what they and lists tell of the data is covered by no guarantee.\n"
)
LISTED = (
    "# Categories were found in the file, each at least 10 times: strike those that the public may not know of, which\n"
    "# `other: true` then takes in.\n"
)
MARKS = (
    "# Numbers such as 1,234 can be read in two ways, one of which is a thousand times the other. For the two TODO of\n"
    "# the reader, write what is meant: the first mark of each, or the second; for `none`, leave the key out.\n"
)
LABELS = (
    "# For the TODO of `positive`, write the label that means 1, the same at all owners: the rarer one of this file\n"
    "# may be the other one in theirs. Where some spell it otherwise, all write one list, such as [sick, ill].\n"
)


@dataclass(slots=True)
class Draft:
    """A schema file in the making.

    Attributes
    ----------
    id, label : str or None
    keys : dict
        `reader`, `positive`, `missing_label`.
    columns : dict of str to dict
        Descriptions.
    notes : dict of str to str
        Remarks on columns, and on those of `ignore`.
    ignore : list of str
    objective, remark : str
        For the label; a comment on the positive one.
    """

    id: str
    label: str | None
    keys: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    ignore: list[str] = field(default_factory=list)
    objective: str = "binary:logistic"
    remark: str = ""

    @property
    def open_bounds(self) -> list[str]:
        """Columns with a TODO."""
        return [name for name, column in self.columns.items() if open_keys(column)]

    @property
    def open_marks(self) -> list[str]:
        """Keys of the reader with a TODO."""
        return open_keys(self.keys.get("reader", {}))

    @property
    def is_label_open(self) -> bool:
        """Whether it is open which label means 1."""
        return is_open(self.keys.get("positive"))

    def text(self) -> str:
        """The schema file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        has_lists = any("categories" in column for column in self.columns.values())
        notes = ((LISTED, has_lists), (MARKS, self.open_marks), (LABELS, self.is_label_open))
        yield "".join([WHY, *(note for note, is_due in notes if is_due)]) + f"id: {flow(self.id)}"
        if self.label is not None:
            yield f"label: {flow(self.label)}"
        for key, value in self.keys.items():
            yield f"{key}: {flow(value)}{self.remark if key == 'positive' else ''}"
        if self.ignore:
            yield "ignore:"
            yield from (f"  - {flow(name)}{self._note(name)}" for name in self.ignore)
        yield "columns:"
        yield from (f"  {flow(name)}: {flow(column)}{self._note(name)}" for name, column in self.columns.items())

    def _note(self, name: str) -> str:
        return f"  # {self.notes[name]}" if name in self.notes else ""


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")

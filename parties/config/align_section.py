"""The `align` section of a run file: record alignment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from parties.config.section import Section
from parties.tables.record_keys import RULE_PATTERN, rules_in_words
from parties.tables.sorted_ids import Duplicates

Method = Literal["psi", "psi-dh", "hashed", "prealigned"]

# Both sides send their rules as words.
MOST_RULE_LETTERS = 100


def _as_rules(given: Any) -> Any:
    return () if given is None else (given,) if isinstance(given, str) else given


def _known_rule(rule: str) -> str:
    if re.fullmatch(RULE_PATTERN, rule) is None:
        raise ValueError("must be case, spaces, email, or phone with a country code, as phone 49")
    return rule


Rule = Annotated[str, AfterValidator(_known_rule)]
Key = Annotated[
    dict[str, Annotated[tuple[Rule, ...], BeforeValidator(_as_rules)]],
    Field(min_length=1),
    BeforeValidator(lambda given: {given: ()} if isinstance(given, str) else given),
]


class AlignSection(Section):
    """The method of record alignment, and the treatment of repeated ids.

    The method is by default private set intersection, or with a list of `ids` none at all: then all parties must bring
    exactly the listed records.
    """

    method: Method | None = Field(
        None, description="How common records are found; by default `psi`, with `ids` `prealigned`."
    )
    duplicates: Duplicates = Field(
        "refuse", description="What to do with repeated ids; `drop` leaves out all their rows."
    )
    secret: Path | None = Field(None, description="File of the secret that all parties share, for `hashed`.")

    keys: tuple[Key, ...] = Field(
        (),
        description="What records are compared by, in order of trust, in place of the schema's id: names of columns, "
        "each with the rules of its normal form (`case`, `spaces`, `email`, `phone 49`), which must be the same at all "
        "parties.",
    )
    prepared: Path | None = Field(
        None,
        description="At a passive party with `psi-dh`: file that keeps its ids under a key for later runs; written by "
        "the first run, and again when the ids have changed.",
    )

    def check_order(self, query: str | None) -> None:
        """Refuse to take the first or last of equal ids from a query whose rows a database may give in any order.

        Raises
        ------
        ValueError
        """
        if query and self.duplicates in ("first", "last") and not re.search(r"\border\s+by\b", query, re.IGNORECASE):
            raise ValueError(
                f"`duplicates: {self.duplicates}` goes by the order of rows, which a query gives by ORDER BY alone"
            )

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.prepared is not None and self.method != "psi-dh":
            raise ValueError("a `prepared` file goes with `method: psi-dh`")
        if self.prepared is not None and self.keys:
            raise ValueError("a `prepared` file keeps ids, so `keys` do not go with it")
        if len(words := rules_in_words(self.keys)) > MOST_RULE_LETTERS:
            raise ValueError(f"the rules of `keys` have {len(words)} letters in words; {MOST_RULE_LETTERS} are allowed")
        if (self.method == "hashed") != (self.secret is not None):
            raise ValueError("`method: hashed` and a `secret` file that all parties share go together")
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that keys are made of."""
        return tuple(name for key in self.keys for name in key)

    def method_for(self, ids: Path | None) -> Method:
        """The method of a run whose file lists `ids`, or does not."""
        return self.method or ("psi" if ids is None else "prealigned")

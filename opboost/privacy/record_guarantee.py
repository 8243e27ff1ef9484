"""Differential privacy guarantee of a model for every record, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from opboost.arrays import plain_values
from opboost.errors import ParameterError, check_choice
from opboost.privacy.guarantee import SEVERAL_RECORDS, html_table, rounded_up
from opboost.privacy.laws import MOST_EPSILON

# One record in a hundred may then be published as it is.
MOST_DELTA = 0.01

_NOTHING = (
    f"Nothing is protected: at an epsilon above {MOST_EPSILON:g} or a delta above {MOST_DELTA:g} noise hides no record."
)

# Who is told apart from whom, in words: as a rule, and where noise depends on how many records there are.
ADDED_OR_REMOVED = "two data sets that differ by one record, added or removed"
REPLACED = "two data sets of the same, public, size that differ in one record's values"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakerPromise:
    """A weaker guarantee of a model, and against whom it holds.

    Attributes
    ----------
    against : str
    epsilon : float
        At the same delta.
    """

    against: str
    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ParameterError(f"a weaker promise needs epsilon > 0; got {self.epsilon}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGuarantee:
    """Differential privacy guarantee of a model trained on noisy sums, per record.

    Attributes
    ----------
    epsilon, delta : float
        Of the whole training, initial score included. Infinite if there is no proof of any.
    claimed_epsilon : float or None
        What a publication says that its procedure costs, where that is reproduced to the letter and is not `epsilon`.
    account : str
        How `epsilon` was obtained.
    mode : {"certified", "paper"}
    neighbours, protected : str
        In words: who is told apart from whom, and what is protected against whom.
    not_protected : tuple of str
    is_secure : bool
        Whether every random bit came from the operating system's entropy.
    bounds_are_public : bool
        Whether the bounds of columns and labels were given, not taken from the data.
    weaker : tuple of WeakerPromise
    """

    epsilon: float
    delta: float
    account: str
    mode: Literal["certified", "paper"]
    is_secure: bool
    bounds_are_public: bool
    claimed_epsilon: float | None = None
    weaker: tuple[WeakerPromise, ...] = ()
    not_protected: tuple[str, ...] = (
        "what is meant to be public: the schema, the bounds and the settings",
        SEVERAL_RECORDS,
    )
    neighbours: str = ADDED_OR_REMOVED
    protected: str = (
        "Whether any one record was used, and every value in it, is protected against everyone who sees the model."
    )

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and 0 <= self.delta < 1):
            raise ParameterError(
                f"a guarantee needs epsilon > 0 and 0 <= delta < 1; got ({self.epsilon}, {self.delta})"
            )
        check_choice("the mode", self.mode, "certified", "paper")

    @property
    def notion(self) -> str:
        """Name of the privacy definition, or ``none``."""
        if math.isinf(self.epsilon):
            return "none"
        return "(epsilon, delta)-DP" if self.delta else "epsilon-DP"

    @property
    def hides(self) -> bool:
        """Whether noise hides a record: up to `MOST_EPSILON` and `MOST_DELTA`."""
        return self.epsilon <= MOST_EPSILON and self.delta <= MOST_DELTA

    @property
    def certified(self) -> bool:
        """Whether the promise may be relied on: certified mode, secure bits, public bounds and noise that hides."""
        is_sound = self.mode == "certified" and self.is_secure and self.bounds_are_public
        return is_sound and self.hides

    def __str__(self) -> str:
        if self.notion == "none":
            text = "No privacy guarantee."
        else:
            at_delta = f" at delta {rounded_up(self.delta, 3)}" if self.delta else ""
            protected = self.protected if self.hides else _NOTHING
            text = (
                f"{protected} The guarantee is {self.notion} with epsilon {rounded_up(self.epsilon)}{at_delta} "
                f"({self.account}), between {self.neighbours}. {self._weaker_words}It does not protect "
                f"{'; '.join(self.not_protected)}."
            )
        if self.claimed_epsilon is not None:
            text += f" The publication claims epsilon {self.claimed_epsilon:.4g}."
        if self.mode == "paper":
            text += " Not certified: this follows a publication to the letter."
        if not self.bounds_are_public:
            text += " Not certified: bounds were taken from the data, and their extremes are not protected."
        if not self.is_secure:
            text += " Drawn from seeded bits: NOT FOR RELEASE."
        return text

    def _repr_html_(self) -> str:
        return html_table(str(self), (), ())

    @property
    def _weaker_words(self) -> str:
        return "".join(f"Against {one.against}, epsilon is {rounded_up(one.epsilon)}. " for one in self.weaker)

    def beside(self, other: RecordGuarantee) -> RecordGuarantee:
        """The guarantee for two trainings of the same kind together, if each record is in one of them at most."""
        return replace(
            self,
            epsilon=max(self.epsilon, other.epsilon),
            delta=max(self.delta, other.delta),
            is_secure=self.is_secure and other.is_secure,
            bounds_are_public=self.bounds_are_public and other.bounds_are_public,
        )

    def to_dict(self) -> dict[str, Any]:
        """The guarantee as plain values for JSON; an infinite loss becomes the string ``"inf"``."""
        plain = {key: plain_values(value) for key, value in asdict(self).items()}
        return {"notion": self.notion, **plain, "certified": self.certified}

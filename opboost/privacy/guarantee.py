"""dLDP guarantees of released columns, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context
from html import escape
from typing import Any

from opboost.arrays import plain_values
from opboost.errors import ParameterError
from opboost.privacy.laws import MOST_EPSILON

# What stands under `not_protected`: always; where records may be answered for from their exact values; and where from
# draws that nobody keeps.
SEVERAL_RECORDS = "several records of one person, and several releases or models of one record: their losses add up"
ROUTED_ANSWERS = (
    "records that are scored in mode routed, held-out ones among them: every split test is answered exactly, one bit "
    "per test and record, without differential privacy"
)
FRESH_ANSWERS = (
    "repeated predictions in mode desensitized: each draws the records' columns anew and loses as much as the release, "
    "in addition to it"
)

# The same where they are answered by cells of an agreed grid.
CELL_ANSWERS = (
    "records that are scored in mode routed, held-out ones among them: which unordered category a record has, and in "
    "which of at most {n_cells} cells of each other column it lies, or that it is missing, is answered exactly, "
    "without differential privacy; however often it is asked, nothing more while a value stays, but for what runs with "
    "other cells or split tests answer; cuts kept from an earlier run tell of its records what its guarantee allows"
)

# And where what was drawn is kept, and drawn anew if the exact value is another one.
CHANGED_VALUES = (
    "whether a value was changed between two releases: asked for again, a record or a column gets the same answer if "
    "nothing changed and another one if something did: one bit, whatever the epsilon"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGuarantee:
    """Privacy guarantee of one released column.

    Attributes
    ----------
    column : str
    mechanism : str
        ``global``, ``local``, ``adj`` or ``randomised_response``.
    law : str
        Law of the noise; empty for randomised response.
    epsilon : float
        Exact loss between two values one unit apart, as `unit` says: for a Local-Map, only inside a cell.
    unit : str
        What one unit is: the column's own step, or a point of the mapped domain where no step is known.
    domain_loss : float
        Exact worst-case loss over the whole domain: the column's LDP epsilon.
    missing_epsilon : float
        Loss of the bit that says whether the cell is empty; 0 if no cell can be. An empty cell and a value lose at most
        `domain_loss` besides.
    parameters : dict of str to float
        Settings of the mechanism: budget, domain size, theta, alpha.
    points : int
        Points of the mapped domain that one unit may span.
    n_cells : int
        Cells of a Local-Map, of which each value's own is published exactly; 0 for other mechanisms.
    narrowest_cell : int
        Points of the narrowest of these cells; 0 where there are none.

    Raises
    ------
    ParameterError
        If a loss is not a number, or infinite although there is noise. Nothing is drawn then.
    """

    column: str
    mechanism: str
    law: str
    epsilon: float
    unit: str
    domain_loss: float
    missing_epsilon: float
    parameters: dict[str, float]
    points: int = 1
    n_cells: int = 0
    narrowest_cell: int = 0

    def __post_init__(self) -> None:
        losses = (self.epsilon, self.domain_loss, self.missing_epsilon)
        has_noise = math.isfinite(self.parameters.get("epsilon", math.inf))
        if not all(loss >= 0 for loss in losses) or (has_noise and math.isinf(self.epsilon)):
            raise ParameterError(
                f"column {self.column!r}: a loss of {self.epsilon} per unit, {self.domain_loss} over the domain and "
                f"{self.missing_epsilon} for empty cells is no promise. Nothing was drawn"
            )
        _check_losses(*self.parameters.values())
        if self.points < 1 or self.n_cells < 0 or self.narrowest_cell < 0:
            raise ParameterError(
                f"column {self.column!r}: a unit has at least one point, and numbers of cells and points are not "
                f"negative; got {self.points}, {self.n_cells} and {self.narrowest_cell}"
            )

    @property
    def hides(self) -> bool:
        """Whether noise hides the smallest difference that this is for: it loses at most `MOST_EPSILON`."""
        return max(self.epsilon, self.missing_epsilon) <= MOST_EPSILON

    @property
    def cell_bits(self) -> float:
        """Bits of each value that its published cell tells, ``log2(n_cells)``: they are not protected at all."""
        return math.log2(self.n_cells) if self.n_cells else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """Privacy guarantee of a release, or of a model trained on it.

    Attributes
    ----------
    notion : str
        Name of the privacy definition, or ``none``.
    epsilon : float
        Sum over the columns of the exact loss between neighbouring values: two records of which every column
        differs by one unit of its own.
    domain_loss : float
        Sum over the columns of the worst case over their domains: the record's LDP epsilon.
    unit, neighbours, protected : str
        In words: the unit of distance, who is told apart from whom, and what is protected against whom.
    not_protected : tuple of str
    columns : tuple of ColumnGuarantee
    is_secure : bool
        Whether every random bit came from the operating system's entropy.
    certified : bool
        Whether the promise may be relied on: secure bits, bounds that are not from the data, and noise that hides.
    """

    notion: str
    epsilon: float
    domain_loss: float
    unit: str
    neighbours: str
    protected: str
    not_protected: tuple[str, ...]
    columns: tuple[ColumnGuarantee, ...] = ()
    is_secure: bool = True
    certified: bool = True

    def __post_init__(self) -> None:
        _check_losses(self.epsilon, self.domain_loss)

    def __str__(self) -> str:
        if self.notion == "none":
            return f"No privacy guarantee. {self.protected}"
        secure = "" if self.is_secure else " Drawn from seeded bits: NOT FOR RELEASE."
        return (
            f"{self.protected} The guarantee is {self.notion}: neighbouring records lose at most "
            f"{rounded_up(self.epsilon)}, any two records at most {rounded_up(self.domain_loss)}. It does not protect "
            f"{'; '.join(self.not_protected)}.{secure}"
        )

    def _repr_html_(self) -> str:
        rows = [
            (one.column, one.mechanism, rounded_up(one.epsilon), rounded_up(one.domain_loss)) for one in self.columns
        ]
        return html_table(str(self), ("column", "mechanism", "loss per unit", "loss of the whole range"), rows)

    def to_dict(self) -> dict[str, Any]:
        """The guarantee as plain values for JSON; an infinite loss becomes the string ``"inf"``."""
        return {key: plain_values(value) for key, value in asdict(self).items()}


def compose(
    columns: tuple[ColumnGuarantee, ...],
    *,
    is_secure: bool,
    bounds_are_public: bool = True,
    not_protected: tuple[str, ...] = (),
) -> Guarantee:
    """The guarantee of releasing these columns of one record together: losses add up over the columns.

    Parameters
    ----------
    columns : tuple of ColumnGuarantee
    is_secure, bounds_are_public : bool
    not_protected : tuple of str
        What the release leaves open besides; see `exposed`.
    """
    if not columns:
        return nothing_released()
    epsilon = sum(one.epsilon + one.missing_epsilon for one in columns)
    domain_loss = sum(one.domain_loss + one.missing_epsilon for one in columns)
    base: dict[str, Any] = {"columns": columns, "epsilon": epsilon, "domain_loss": domain_loss, "is_secure": is_secure}
    if math.isinf(epsilon):
        return Guarantee(
            notion="none",
            unit="",
            neighbours="",
            protected="At least one column was released without noise.",
            not_protected=("every value of the columns released without noise", *not_protected),
            certified=False,
            **base,
        )
    local = [column for column in columns if column.mechanism == "local"]
    listed = ["the active party's labels and own columns", "which records take part", SEVERAL_RECORDS]
    if local:
        bits = sum(column.cell_bits for column in local)
        listed.append(
            "the cell of each value released by a Local-Map: its index is published exactly, and so is the value where "
            f"the cell has one point; over all columns, {rounded_up(bits)} bits of every record"
        )
    if not bounds_are_public:
        listed.append("the extremes of the columns, because their bounds were taken from the data")
    return Guarantee(
        notion="dLDP inside the cells of Local-Map" if local else "dLDP",
        unit=(
            "a column's own step: one category of ordered ones; of numbers the step that the schema knows or, where it "
            "knows none, one point of the mapped domain; any change of an unordered category"
        ),
        neighbours="two records of which every released column differs by one step of its own"
        + (", inside a cell where it is released by a Local-Map" if local else ""),
        protected=_protected([column.hides for column in columns]),
        not_protected=(*listed, *not_protected),
        certified=is_secure and bounds_are_public and all(column.hides for column in columns),
        **base,
    )


def _protected(hides: Sequence[bool]) -> str:
    """What is protected of columns, some of which hide nothing; without names, which are their owner's."""
    n_open, n_columns = hides.count(False), len(hides)
    nothing = f"Nothing is protected in {n_open} of {n_columns} released columns: their neighbouring values lose over "
    nothing += f"{MOST_EPSILON:g}, which no noise hides."
    kept = (
        f"The values of the {'other ' * bool(n_open)}released columns are protected against everyone who sees what was "
        "released, in proportion to the distance between records."
    )
    return nothing if n_open == n_columns else f"{nothing} {kept}" if n_open else kept


def nothing_released() -> Guarantee:
    """The guarantee of a model that one party trained on its own columns."""
    return Guarantee(
        notion="none",
        epsilon=0.0,
        domain_loss=0.0,
        unit="",
        neighbours="",
        protected="No other party's column was used and nothing was released.",
        not_protected=("the model itself: it was trained on exact data",),
        certified=False,
    )


def exposed(*, allow_routed: bool, redraws: bool, n_cells: int | None = None) -> tuple[str, ...]:
    """What a release does not protect besides the columns, for `compose`.

    Parameters
    ----------
    allow_routed : bool
        Whether split tests about records may be answered from exact values.
    redraws : bool
        Whether a value that was changed since it was drawn is drawn anew.
    n_cells : int, optional
        Cells of a column at most, where answers are numbers of cells.
    """
    routed = ROUTED_ANSWERS if n_cells is None else CELL_ANSWERS.format(n_cells=n_cells)
    return (routed,) * allow_routed + (CHANGED_VALUES,) * redraws


def with_tests(guarantee: Guarantee, n_tests: int) -> Guarantee:
    """The same guarantee with the number of split tests that `ROUTED_ANSWERS` speaks of, where that stands in it."""
    counted = f"{ROUTED_ANSWERS}; the model has {n_tests} tests on these columns, so {n_tests} exact bits per record"
    counted += ", and another model asks its own"
    listed = (counted if one == ROUTED_ANSWERS else one for one in guarantee.not_protected)
    return replace(guarantee, not_protected=tuple(listed))


def rounded_up(loss: float, digits: int = 4) -> str:
    """A loss in so many digits, rounded up; a billionth more than a number that has them counts as that number."""
    if not 0 < loss < math.inf:
        return f"{loss:g}"
    found = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(loss * (1 - 1e-9))
    return f"{float(found):.{digits}g}"


def html_table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A sentence and a table for notebooks, with every text escaped; without rows the sentence alone."""

    def row(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    table = "".join((row(headings, "th"), *(row(cells, "td") for cells in rows)))
    return f"<p>{escape(caption)}</p>" + f"<table>{table}</table>" * bool(rows)


def _check_losses(*losses: float) -> None:
    if not all(loss >= 0 for loss in losses):
        raise ParameterError("the losses and parameters of a guarantee must be numbers of at least 0, or infinite")

"""Constraints on a column that nobody brings are refused at the greeting: before anything is drawn, charged or sent."""

from __future__ import annotations

from typing import Any

import pytest

from opboost.desensitize import ColumnMechanism, MechanismSettings
from opboost.errors import ParameterError
from opboost.schema import ColumnSchema, Kind
from opboost.trees.constraints import ColumnConstraints
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.session.termination import NO_REASON
from parties.vertical import party_b
from parties.vertical.party_a import train_jointly
from parties.vertical.release_offer import offered_names
from protocols.errors import PeerAborted
from protocols.messages.vertical import Offer

SILENT = Terminal()


def train_both(sites: Any, outcomes: Any) -> dict[str, Any]:
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )


# The bank has `age`; the shop two columns without unordered categories, which go by numbers.
WRONG = {
    "a name that stays with its owner": {"monotone_constraints": {"spend": 1}},
    "a column too many": {"monotone_constraints": {"c2": 1}},
    "a group": {"interaction_constraints": [["age", "c1"], ["c0", "income"]]},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("method", ["prealigned", "psi"])
def test_nothing_is_drawn_for_constraints_that_nobody_can_meet(
    sites: Any, outcomes: Any, method: str, wrong: dict[str, Any]
) -> None:
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": method}
    sites.bank.run["model"] = {"n_estimators": 2, **wrong}
    found = train_both(sites, outcomes)
    assert isinstance(found["bank"], ParameterError)
    assert "constraints name columns that do not exist" in str(found["bank"])
    assert str(found["bank"]).endswith("Nothing was released")
    assert isinstance(found["shop"], PeerAborted)
    assert f"bank ended the run while greeting: {NO_REASON}" in str(found["shop"])
    assert '"released"' not in (sites.shop.run_folder / "log.jsonl").read_text()
    # With constraints that can be met the same run goes on, and what the ledger then holds is all there is.
    sites.bank.run["model"] = {"n_estimators": 2, "monotone_constraints": {"c1": 1}}
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)], found
    log = (sites.shop.run_folder / "log.jsonl").read_text()
    assert log.count("2 columns drawn and charged") == 1


@pytest.mark.parametrize("opaque", [True, False])
def test_the_names_in_the_greeting_are_those_of_the_offer(
    trial: Any, recital: Any, outcomes: Any, opaque: bool
) -> None:
    """An unordered column comes as one indicator per category."""
    from protocols.transport.memory import memory_pair

    offered: list[str] = []
    near, far = memory_pair("bank", "shop")

    def listen(kind: str, frames: Any) -> None:
        from protocols.transport.codec import decode

        if kind == Offer.kind:
            offered.extend(column.name for column in decode(frames).columns)  # type: ignore[attr-defined]

    near.traffic.on_receive = listen
    job = trial.passive("shop", opaque_names=opaque)
    names = job.hello().names
    first, last = ("c0", "c4") if opaque else ("spend", "town=east")
    constrained = trial.active(constraints=ColumnConstraints({first: 1}, [["age", last]]))
    found = outcomes({"bank": lambda: train_jointly(constrained, [near]), "shop": lambda: party_b.train(job, far)})
    assert not [error for error in found.values() if isinstance(error, BaseException)], found
    assert tuple(offered) == names
    assert len(names) == 5
    assert (names[0], names[-1]) == (first, last)
    n_indicators = sum(len(m.schema.categories) for m in job.mechanisms if m.schema.kind is Kind.UNORDERED)
    assert len(offered_names(job.mechanisms, opaque_names=opaque)) == 2 + n_indicators


@pytest.mark.parametrize(("column", "category"), [("c" * 150, "x" * 60), ("a", ""), ("a\nb", "x"), ("a", "\x1b[2J")])
def test_names_that_cannot_travel_are_refused_unless_numbers_stand_for_them(
    trial: Any, column: str, category: str
) -> None:
    unordered = ColumnSchema(name=column, kind=Kind.UNORDERED, categories=(category, "y"))
    number = ColumnSchema(name=category, lower=0, upper=1)
    mechanisms = tuple(ColumnMechanism(schema, MechanismSettings()) for schema in (unordered, number))
    with pytest.raises(ParameterError, match=r"cannot travel as they are.*`opaque_names`\)\. Nothing was sent"):
        trial.passive("shop", mechanisms=mechanisms, opaque_names=False).hello()
    assert trial.passive("shop", mechanisms=mechanisms).hello().names == ("c0", "c1", "c2")


def test_a_constraint_may_name_the_columns_of_two_passive_parties(trial: Any, outcomes: Any) -> None:
    """Each greets for itself; what one lacks the other may have. A name that both use is ambiguous."""
    from protocols.transport.memory import memory_pair

    def train(constraints: ColumnConstraints) -> dict[str, Any]:
        pairs = {name: memory_pair("bank", name) for name in ("shop", "post")}
        return outcomes(
            {
                "bank": lambda: train_jointly(
                    trial.active(constraints=constraints), [near for near, _ in pairs.values()]
                ),
                **{
                    name: lambda name=name, far=far: party_b.train(trial.passive(name, opaque_names=False), far)
                    for name, (_, far) in pairs.items()
                },
            }
        )

    found = train(ColumnConstraints({"parcels": 1, "spend": 1}))
    assert not [error for error in found.values() if isinstance(error, BaseException)], found
    found = train(ColumnConstraints({"parcels": 1, "letters": 1}))
    assert "columns that do not exist: letters. Nothing was released" in str(found["bank"])
    assert {type(found[name]) for name in ("shop", "post")} == {PeerAborted}

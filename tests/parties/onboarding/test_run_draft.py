"""Drafted run files: given keys count, every other key stands there as a comment that can be taken up."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.vertical import ActiveRun, PassiveRun
from parties.onboarding.key_words import keys_of
from parties.onboarding.run_draft import DESENSITIZE, run_file_text
from tests.support.yaml_text import with_keys

COMMON = {"party": "bank", "run_id": "first", "data": "bank.csv", "schema": "schema.yaml"}
TRAINING = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "workers": 2,
    "threshold": 2,
    "noise": "workers",
    "honest": 2,
    "recommended": {"records": 900},
}
GIVEN: dict[type[BaseModel], dict[str, Any]] = {
    ActiveRun: {
        "role": "active",
        **COMMON,
        "listen": "tcp://127.0.0.1:1",
        "passive": [{"name": "shop", "public_key": "keys/shop.public"}],
        "model": {"objective": "reg:squarederror"},
    },
    PassiveRun: {
        "role": "passive",
        **COMMON,
        "connect": "tcp://127.0.0.1:1",
        "active": {"name": "shop"},
        "desensitize": DESENSITIZE,
    },
    CoordinatorRun: {
        "role": "coordinator",
        **{key: value for key, value in COMMON.items() if key != "data"},
        "listen": "tcp://127.0.0.1:1",
        "workers": [{"name": "shop"}, {"name": "office"}],
        "training": TRAINING,
    },
    WorkerRun: {
        "role": "worker",
        **COMMON,
        "connect": "tcp://127.0.0.1:1",
        "coordinator": {"name": "hub"},
        "training": TRAINING,
    },
    OwnerRun: {
        "role": "owner",
        **COMMON,
        "owners": [{"name": "shop", "connect": "tcp://127.0.0.1:1"}],
        "training": {"epsilon": 1.0, "order": ["shop", "bank"]},
    },
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_drafted_run_file_says_what_was_given_and_is_valid(kind: type[BaseModel]) -> None:
    document = yaml.safe_load(run_file_text(kind, GIVEN[kind]))
    assert with_keys(document) == GIVEN[kind]
    assert kind.model_validate(document) == kind.model_validate(GIVEN[kind])


@pytest.mark.parametrize("kind", [ActiveRun, PassiveRun, WorkerRun, CoordinatorRun, OwnerRun])
def test_every_key_stands_in_a_drafted_run_file_with_its_meaning(kind: type[BaseModel]) -> None:
    lines = run_file_text(kind, GIVEN.get(kind, {})).splitlines()
    for key, field in keys_of(kind):
        (line,) = (line for line in lines if re.match(rf"#?{key}:", line))
        assert field.description
        assert field.description in line


@pytest.mark.parametrize("kind", GIVEN)
def test_a_comment_can_be_taken_up_by_removing_its_mark(kind: type[BaseModel]) -> None:
    """Each by itself gives YAML; those with a default give a valid run file."""
    lines = run_file_text(kind, GIVEN[kind]).splitlines()
    places = [place for place, line in enumerate(lines) if place and line.lstrip().startswith("#")]
    taken = 0
    for place in places:
        found = re.match(r"( *)#(\w+): (\S*)", lines[place])
        assert found is not None, lines[place]
        indent, key, value = found.groups()
        taken_up = [*lines[:place], indent + lines[place][found.start(2) :], *lines[place + 1 :]]
        document = yaml.safe_load("\n".join(taken_up))
        assert document != yaml.safe_load("\n".join(lines))
        if value in ("", "#") or key in ("engine", "folder", "scheduler", "workers", "partition_rows"):
            continue
        if any((document.get("training") or {}).get(other) for other in ("sgbdt", "federated")):
            # The section of another recipe goes without that of this one.
            del document["training"]["recommended"]
        kind.model_validate(document)
        taken += 1
    # An owner has the fewest keys.
    assert taken > (14 if kind is OwnerRun else 15)


def test_a_default_that_depends_on_the_objective_is_left_open() -> None:
    """It was shown as 0, which is no number of trees."""
    lines = run_file_text(CoordinatorRun, GIVEN[CoordinatorRun]).splitlines()
    found = [line for line in lines if "left out: 3" in line]
    assert [line.split("  # ")[0] for line in found] == ["    #n_estimators: ", "    #max_depth: "]

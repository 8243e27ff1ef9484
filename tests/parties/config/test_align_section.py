"""The `align` section: a secret goes with hashed ids, prepared ids with Diffie-Hellman, and neither with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from parties.config.align_section import AlignSection

IDS = Path("ids.txt")


@pytest.mark.parametrize(
    ("given", "ids", "method"),
    [
        ({}, None, "psi"),
        ({}, IDS, "prealigned"),
        ({"method": "psi"}, IDS, "psi"),
        ({"method": "prealigned"}, None, "prealigned"),
        ({"method": "hashed", "secret": "a.shared"}, None, "hashed"),
    ],
)
def test_the_method_is_intersection_unless_ids_are_listed_or_it_is_named(
    given: dict[str, Any], ids: Path | None, method: str
) -> None:
    assert AlignSection(**given).method_for(ids) == method


@pytest.mark.parametrize("given", [{"method": "hashed"}, {"secret": "a.shared"}, {"method": "psi", "secret": "a"}])
def test_a_secret_and_hashed_ids_go_together(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="`method: hashed` and a `secret` file that all parties share"):
        AlignSection(**given)


@pytest.mark.parametrize("method", ["psi", "hashed", "prealigned", None])
def test_prepared_ids_go_with_diffie_hellman(method: str | None) -> None:
    secret = {"secret": "a.shared"} if method == "hashed" else {}
    with pytest.raises(ValidationError, match="a `prepared` file goes with `method: psi-dh`"):
        AlignSection(method=method, prepared="ids.prepared", **secret)
    assert AlignSection(method="psi-dh", prepared="ids.prepared").prepared == Path("ids.prepared")


@pytest.mark.parametrize("rule", ["lower", "phone", "phone +49", ""])
def test_an_unknown_rule_is_refused_with_those_there_are(rule: str) -> None:
    with pytest.raises(
        ValidationError, match=r"must be case, spaces, email, or phone with a country code, as phone 49"
    ):
        AlignSection(keys=[{"name": ["case", rule]}])

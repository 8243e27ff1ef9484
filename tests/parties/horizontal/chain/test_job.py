"""Inputs of an owner of a chain: its place in the order and the number of all turns."""

from __future__ import annotations

from pathlib import Path

from tests.support.chains import ORDER, Chain, recipe


def test_every_owner_has_its_place_and_all_have_as_many_turns_together(tmp_path: Path) -> None:
    chain, of = Chain(tmp_path, "memory"), recipe(n_rounds=4)
    jobs = [chain.job(of, name) for name in ORDER]
    assert [job.place for job in jobs] == [0, 1, 2]
    assert {job.n_turns for job in jobs} == {12}

"""Chain checkpoint: trees and coins read back to the bit, and what was meddled with is refused."""

from __future__ import annotations

import json
import operator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.inprivate.training import run_chain
from opboost.rng import BitSource, secure, seeded
from opboost.trees.tree import Tree
from parties.errors import RunFolderError, TreesDiffer
from parties.horizontal.chain.checkpoint import ChainCheckpoint, Turn, trees_digest
from parties.runs.run_folder import RunFolder
from parties.storage.twice_kept import write_twice
from tests.support.chains import owner_of, recipe

OF = recipe(n_rounds=1)


@cache
def trees() -> list[Tree]:
    return run_chain([owner_of(OF, place) for place in range(3)], n_rounds=1, epsilon=OF.epsilon)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run.yaml").write_text("party: w0\n")
    found = RunFolder(tmp_path / "run")
    found.create(tmp_path / "run.yaml", party="w0", role="owner")
    return found


@pytest.fixture
def checkpoint(folder: RunFolder) -> ChainCheckpoint:
    found = ChainCheckpoint(folder)
    found.coins("rows", rng=seeded(1))
    return found


def test_turns_read_back_to_the_bit(checkpoint: ChainCheckpoint, folder: RunFolder) -> None:
    assert (checkpoint.count, checkpoint.read(OF, is_own=bool)) == (0, [])
    for turn, tree in enumerate(trees()):
        checkpoint.keep(turn, Turn(tree=tree, is_secure=turn > 0))
    found = ChainCheckpoint(folder).read(OF, is_own=bool)
    assert [one.is_secure for one in found] == [False, True, True]
    for one, tree in zip(found, trees(), strict=True):
        for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "values"):
            np.testing.assert_array_equal(getattr(one.tree, name), getattr(tree, name))


@pytest.mark.parametrize(
    "change", [{"columns": [99] * 3}, {"values": "x"}, {"lefts": None}, {"thresholds": []}, {"rights": [2**40]}]
)
def test_a_tree_that_fits_no_agreement_is_refused(
    checkpoint: ChainCheckpoint, folder: RunFolder, change: dict[str, Any]
) -> None:
    checkpoint.keep(0, Turn(tree=trees()[0], is_secure=True))
    path = folder.path / "turns" / "0000.json"
    write_twice(path, {**json.loads(path.read_text())[path.name], **change})
    with pytest.raises(RunFolderError, match=r"0000\.json is malformed; choose another run_id\. Nothing was sent"):
        checkpoint.read(OF, is_own=lambda turn: turn == 0)


def test_a_damaged_tree_is_read_from_its_copy_or_asked_for_again_if_no_own_one_followed(
    checkpoint: ChainCheckpoint, folder: RunFolder
) -> None:
    """The own one was drawn on the residuals of the lost one, which another owner might give otherwise now."""
    for turn, tree in enumerate(trees()):
        checkpoint.keep(turn, Turn(tree=tree, is_secure=True))
    turns = folder.path / "turns"
    (turns / "0001.json").write_text('{"0001.json": {"is_secure": true}, "digest": ""}')
    assert len(checkpoint.read(OF, is_own=bool)) == 3
    (turns / "0001.copy").unlink()
    assert len(checkpoint.read(OF, is_own=lambda turn: turn == 0)) == 1
    for own in (1, 2):
        with pytest.raises(RunFolderError, match=r"0001\.json cannot be read"):
            checkpoint.read(OF, is_own=partial(operator.eq, own))


def test_a_missing_turn_is_not_skipped(checkpoint: ChainCheckpoint) -> None:
    for turn in (0, 2):
        checkpoint.keep(turn, Turn(tree=trees()[turn], is_secure=True))
    for own in (1, 2):
        with pytest.raises(RunFolderError):
            checkpoint.read(OF, is_own=partial(operator.eq, own))


def test_owners_are_met_again_where_it_cannot_be_read_who_has_finished(
    checkpoint: ChainCheckpoint, folder: RunFolder
) -> None:
    checkpoint.note_confirmed("w1")
    checkpoint.note_confirmed("w2")
    assert checkpoint.confirmed == {"w1", "w2"}
    # Where none is said to differ, an earlier version asked only whether every tree is there.
    for damaged in ("", "[]", '{"names": 3, "differing": []}', '{"names": [3], "differing": []}', '{"names": ["w1"]}'):
        (folder.path / "confirmed.json").write_text(damaged)
        assert checkpoint.confirmed == frozenset()


def test_a_confirmation_is_of_the_trees_that_there_were_and_a_difference_stays_until_it_is_taken_back(
    checkpoint: ChainCheckpoint,
) -> None:
    checkpoint.note_confirmed("w1")
    checkpoint.note_differing("w2")
    checkpoint.keep(0, Turn(tree=trees()[0], is_secure=True))
    assert (checkpoint.confirmed, checkpoint.differing) == (frozenset(), {"w2"})
    checkpoint.note_differing("w1")
    with pytest.raises(TreesDiffer, match=r"the trees of w1 and of w2 are not those of w0: .* but no model is kept"):
        checkpoint.refuse_differing("w0")
    for name in ("w1", "w2"):
        checkpoint.note_confirmed(name)
    checkpoint.refuse_differing("w0")
    assert checkpoint.confirmed == {"w1", "w2"}
    checkpoint.note_unconfirmed("w2")
    assert (checkpoint.confirmed, checkpoint.differing) == ({"w1"}, frozenset())


def test_the_digest_is_of_every_part_of_all_trees_in_their_order(checkpoint: ChainCheckpoint) -> None:
    turns = [Turn(tree=tree, is_secure=True) for tree in trees()]
    for turn, one in enumerate(turns):
        checkpoint.keep(turn, one)
    assert trees_digest(checkpoint.read(OF, is_own=bool)) == trees_digest(turns)
    first, *later = turns
    tree, root = first.tree, np.arange(first.tree.n_nodes) == 0
    changes: list[dict[str, Any]] = [
        {"columns": np.where(root, 1 - tree.columns, tree.columns)},
        {"thresholds": np.where(root, np.nextafter(tree.thresholds, 99), tree.thresholds)},
        {"missing_left": tree.missing_left ^ root},
        {"lefts": tree.rights, "rights": tree.lefts},
        {"values": np.nextafter(tree.values, 99)},
    ]
    others = [[*later, first], turns[:2], [replace(first, is_secure=False), *later]]
    others += [[replace(first, tree=replace(tree, **change)), *later] for change in changes]
    assert len({trees_digest(turns), *map(trees_digest, others)}) == 9


@pytest.mark.parametrize("is_secure", [False, True])
def test_coins_are_drawn_once_for_the_same_rows(folder: RunFolder, is_secure: bool) -> None:
    first = ChainCheckpoint(folder).coins("rows", rng=secure() if is_secure else seeded(4))
    again = ChainCheckpoint(folder).coins("rows", rng=secure())
    assert first.is_secure is again.is_secure is is_secure
    assert first.fork("r1").words(3).tolist() == again.fork("r1").words(3).tolist()
    with pytest.raises(RunFolderError, match="beginning of a run on other rows"):
        ChainCheckpoint(folder).coins("others", rng=secure())


def test_no_tree_is_drawn_from_coins_of_another_version(checkpoint: ChainCheckpoint, folder: RunFolder) -> None:
    """Its noise may come from other streams of the same coins: a tree that is drawn again would be another one."""
    checkpoint.check_version()
    path = folder.path / "coins.json"
    kept = json.loads(path.read_text())[path.name]
    write_twice(path, {**kept, "version": "0.0.9"})
    with pytest.raises(RunFolderError, match=r"under version 0\.0\.9 of opboost; .* other noise.* Nothing was drawn"):
        checkpoint.check_version()
    # Whoever draws none goes on with them; files of before versions were noted are taken as they are.
    checkpoint.coins("rows", rng=secure())
    del kept["version"]
    write_twice(path, kept)
    checkpoint.check_version()


@pytest.mark.parametrize("change", [{"coins": "zz"}, {"coins": "00"}, {"coins": 3}])
def test_damaged_coins_are_read_from_the_copy_and_without_one_refused(
    checkpoint: ChainCheckpoint, folder: RunFolder, change: dict[str, Any]
) -> None:
    path = folder.path / "coins.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, path.name: {**document[path.name], **change}}))
    other = ChainCheckpoint(folder).coins("rows", rng=seeded(2))
    assert (
        other.words(3).tolist()
        == BitSource(bytes.fromhex(document[path.name]["coins"]), is_secure=False).words(3).tolist()
    )
    write_twice(path, {**document[path.name], **change})
    with pytest.raises(RunFolderError, match=r"coins\.json cannot be read"):
        checkpoint.coins("rows", rng=seeded(1))

"""Sums over a ledger's lines: spent budgets, releases, answers, resolved tests and agreed grids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from parties.ledger import ledger_lines as lines
from parties.ledger.budget import SpentBudgets
from parties.ledger.ledger_lines import GridKey, ResolvedTest
from parties.tables.key_sets import NAME, KeySet


class LedgerSums:
    """Sums of a ledger's verified lines.

    Parameters
    ----------
    records : callable
        The set of records that a digest is of, verified.

    Attributes
    ----------
    balances : SpentBudgets
    n_releases, n_reuses, n_answered : Counter of str
        By column.
    peers : set of str
    families : dict of str to str
        The column of each family of releases whose losses add up.
    grids : dict of GridKey to list of float
        Thresholds that were agreed.
    contents : dict of int to dict of str to str
        Digest of what was drawn, by charge and set of records.
    old_contents : dict of int to str
        The same in an earlier version's store, by charge.
    is_migrated : bool
        Whether that store was taken over.
    """

    def __init__(self, records: Callable[[str], KeySet]) -> None:
        self.balances = SpentBudgets()
        self.n_releases, self.n_reuses, self.n_answered = (Counter[str]() for _ in range(3))
        self.peers: set[str] = set()
        self.families: dict[str, str] = {}
        self.grids: dict[GridKey, list[float]] = {}
        self.contents: dict[int, dict[str, str]] = {}
        self.old_contents: dict[int, str] = {}
        self.is_migrated = False
        self._records = records
        self._tests: dict[tuple[str, str], set[ResolvedTest]] = {}
        self._trained: dict[tuple[str, bool], set[str]] = {}

    def count(self, line: dict[str, Any]) -> None:
        """Count a line; raises KeyError, TypeError or ValueError for one that this version does not write."""
        match line["kind"]:
            case "charge":
                self.families[line.get("family", "")] = line["column"]
                self._count_charge(line)
                self.n_releases[line["column"]] += 1
                self._count_answered(line)
            case "released" | "held_out":
                self._count_answered(line)
            case "cells":
                self._count_charge(line)
            case "stored" if "names" in line:
                self.contents.setdefault(line["charge"], {})[line["names"]] = line["content"]
            case "stored":
                self.old_contents[line["charge"]] = line["content"]
            case "reuse":
                self.n_reuses[line["column"]] += 1
                self._count_answered(line)
            case "tests":
                key = line["peer"], line["run_id"]
                self._tests.setdefault(key, set()).update(tuple(test) for test in line["tests"])
            case "grid":
                self.grids[lines.grid_key(line)] = line["thresholds"]
            case "migrated":
                self.is_migrated = True
            case _:
                raise ValueError("a kind of line that this version does not know")

    def _count_charge(self, line: dict[str, Any]) -> None:
        digest = line["records"]
        # Records that were read for an earlier line are known by their digest.
        records = np.empty(0, NAME) if self.balances.knows(digest) else self._records(digest)
        self.balances.add(lines.charged(line, records), digest)

    def _count_answered(self, line: dict[str, Any]) -> None:
        self.peers.add(line["peer"])
        if line["task"] == "train" and "records" in line:
            self._trained.setdefault((line["peer"], line["kind"] == "held_out"), set()).add(line["records"])
        if line["task"] == "predict":
            self.n_answered[line["column"]] += line["n_records"]

    def trained(self, peer: str, *, held_out: bool = False) -> list[str]:
        """Digests of the sets of records that were released for training to a peer, or held out."""
        return sorted(self._trained.get((peer, held_out), ()))

    def all_trained(self) -> set[str]:
        """Digests of all sets that were released for training or held out, over all peers."""
        return set().union(*self._trained.values())

    def trained_digest(self) -> str:
        """One digest of all releases for training, with their peers, and of all held-out records."""
        return lines.digest_of([[*key, sorted(digests)] for key, digests in sorted(self._trained.items())])

    def tests(self, peer: str, run_id: str | None = None) -> set[ResolvedTest]:
        """The split tests that were resolved for a peer, in one run or in all."""
        return set().union(*(t for key, t in self._tests.items() if key[0] == peer and run_id in (None, key[1])))

    def n_tests(self, column: str) -> int:
        """How many tests on a column were resolved in all runs, each peer's counted by itself."""
        peers = {peer for peer, _ in self._tests}
        return sum(self.families.get(test[0]) == column for peer in peers for test in self.tests(peer))

    def to_dict(self) -> dict[str, Any]:
        """Everything that was counted, as plain values."""
        return {
            "balances": self.balances.to_dict(),
            "releases": self.n_releases,
            "reuses": self.n_reuses,
            "answered": self.n_answered,
            "peers": sorted(self.peers),
            "families": self.families,
            "contents": [list(self.contents), list(self.contents.values())],
            "old_contents": [list(self.old_contents), list(self.old_contents.values())],
            "is_migrated": self.is_migrated,
            "trained": [[*key, sorted(digests)] for key, digests in self._trained.items()],
            "grids": [list(self.grids), list(self.grids.values())],
            "tests": [[*key, sorted(map(list, tests), key=str)] for key, tests in self._tests.items()],
        }

    def take_up(self, sums: dict[str, Any]) -> None:
        """The inverse of `to_dict`, for sums that are empty; the sets of records are verified when they are read."""
        self.balances.take_up(sums["balances"], self._records)
        self.n_releases, self.n_reuses = Counter(sums["releases"]), Counter(sums["reuses"])
        self.n_answered, self.families = Counter(sums["answered"]), sums["families"]
        self.peers, self.is_migrated = set(sums["peers"]), sums["is_migrated"]
        self.contents = dict(zip(*sums["contents"], strict=True))
        self.old_contents = dict(zip(*sums["old_contents"], strict=True))
        self._trained = {(peer, held_out): set(digests) for peer, held_out, digests in sums["trained"]}
        self.grids = {tuple(key): cuts for key, cuts in zip(*sums["grids"], strict=True)}
        self._tests = {(peer, run): {tuple(test) for test in tests} for peer, run, tests in sums["tests"]}

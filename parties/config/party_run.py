"""Run files: the keys of every role, and the sections that several roles share.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from parties.config.addresses import HostAndPort, host_and_port
from parties.config.agreed_terms import AgreedSection
from parties.config.protection import GivenBudget, check_protection
from parties.config.section import PlainName, Section, paths_in
from parties.errors import ConfigError
from parties.storage.name_patterns import is_named_by
from parties.storage.paths import is_taken, real_places
from protocols.transport.channel import Timing
from protocols.transport.keys import is_loopback

# FATE's names for the roles, accepted in run files and nowhere else.
ROLE_ALIASES = {"guest": "active", "host": "passive"}

# Of training on rows that are divided between owners; `parties.config.record_runs` reads their run files.
HORIZONTAL_ROLES = ("coordinator", "worker", "owner")

# What stands in a run folder for people alone.
_REPORTS = ("report", "explanation", "reasons")

_WEEK_S = 7 * 24 * 3600


def _default_folder(given: dict[str, Any]) -> Path:
    return Path("runs") / given.get("run_id", "")


class NamedKey(Section):
    """Another party: its name and its public key file."""

    name: PlainName = Field(description="The other party's name.")
    public_key: Path | None = Field(None, description="Its public key file.")


class Peer(NamedKey):
    """Another party, and what was agreed that it does."""

    agreed: AgreedSection = Field(AgreedSection(), description="What was agreed that it does.")


class MetricsSection(Section):
    """Prometheus metrics of a job."""

    listen: HostAndPort = Field(description="Address of the metrics, `host:port` on loopback.")

    @model_validator(mode="after")
    def _check_loopback(self) -> Self:
        if not is_loopback(host_and_port(self.listen)[0]):
            raise ValueError(f"listen must be on loopback, for nobody is asked who it is; found {self.listen}")
        return self


@dataclass(frozen=True, slots=True)
class Wiring:
    """The connections of a party: who connects to whom, and the peers whose keys are needed.

    Attributes
    ----------
    peers : sequence of NamedKey
        Everybody at the other end of a connection, or whose key must be known.
    calls : dict of str to str
        The addresses that this party connects to, by peer.
    listen : str or None
        The address that the others connect to.
    """

    peers: Sequence[NamedKey]
    calls: dict[str, str]
    listen: str | None

    @property
    def connected(self) -> list[str]:
        """Names of the peers at the other end of a connection: without `listen`, those that this party connects to."""
        return [peer.name for peer in self.peers if self.listen is not None or peer.name in self.calls]

    @property
    def addresses(self) -> list[str]:
        """All addresses of this party's connections."""
        return [*self.calls.values(), *([] if self.listen is None else [self.listen])]


class PartyRun(Section):
    """The keys that run files of all roles have."""

    role: str = Field(description="The role.")
    party: PlainName = Field(description="This party's name.")
    run_id: PlainName = Field(description="Name of the run, the same on all sides.")
    table_schema: Path = Field(alias="schema", description="Schema file of the data.")
    secret_key: Path | None = Field(None, description="This party's secret key file.")
    timeout: float = Field(10.0, gt=0, le=3600, description="Seconds of silence after which a peer counts as lost.")
    wait: float = Field(
        60.0, gt=0, le=_WEEK_S, description="Seconds to look for the peers, and for one that is gone to come back."
    )
    stall: float = Field(
        900.0,
        gt=0,
        le=_WEEK_S,
        description="Seconds without a sign of life of a peer's program until it counts as hung.",
    )
    run_folder: Path = Field(
        alias="folder",
        default_factory=_default_folder,
        description="Run folder; by default `runs/RUN_ID` beside the run file.",
    )
    report: bool = Field(True, description="Whether reports are written.")
    metrics: MetricsSection | None = Field(None, description="Where Prometheus finds metrics while a job is on.")
    no_privacy: bool = Field(False, description="Allows budgets that protect nothing.")

    @property
    def kept_files(self) -> dict[str, Path]:
        """Files that several runs write to, by their places in the run file; none lies in a run folder."""
        return {}

    def check_free(self, out: Path | None, run_file: Path) -> None:
        """Refuse a place to write at, if one is given, where the run reads or keeps something but its reports.

        Raises
        ------
        ConfigError
        RunFolderError
            If nothing can be there.
        """
        if out is None:
            return
        places, kept = real_places(out), (run_file, *paths_in(self))
        real = {Path(os.path.realpath(path)) for path in kept}
        # A folder holds the files of a table or of a run, and a pattern names files.
        is_inside = is_taken(out) and any(
            place.stem not in _REPORTS
            and (any(map(place.is_relative_to, real)) or any(is_named_by(place, path) for path in kept))
            for place in places
        )
        belongs = any(is_named_by(place, pattern) for place in places for pattern in self._beside_ledgers())
        if is_inside or belongs or not real.isdisjoint(places):
            raise ConfigError(
                f"{out} is what the run reads or keeps; give another place with --out. Nothing was written"
            )

    def _beside_ledgers(self) -> Iterator[Path]:
        """Patterns of the files that belong to a ledger, and of those with keys of held-out records."""
        yield self.run_folder.parent / "held_out.*.json"
        for key, path in self.kept_files.items():
            if "ledger" in key:
                ledger = Path(os.path.realpath(path))
                yield ledger.with_suffix(".*")
                yield ledger.with_name(f"{ledger.name}-*")
                yield ledger.with_name("held_out.*.json")

    @property
    def timing(self) -> Timing:
        return Timing(timeout_s=self.timeout, wait_s=self.wait, stall_s=self.stall)

    @property
    def wiring(self) -> Wiring:
        """The connections that the run file describes."""
        raise NotImplementedError

    def budgets(self) -> Iterable[GivenBudget]:
        """All budgets of the run file, by their places in it.

        Raises
        ------
        ConfigError
            If keys do not go together.
        """
        return ()

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        try:
            given = list(self.budgets())
        except ConfigError as error:
            raise ValueError(str(error)) from None
        check_protection(given, no_privacy=self.no_privacy)
        return self

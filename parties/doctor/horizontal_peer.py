"""Checks of horizontal roles with the others before a run: whether their terms are the same.

A worker and its coordinator ask each other, and so do every two owners in a chain: a doctor or a run that waits.
Whoever asks takes no part in the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from pydantic import JsonValue

from parties.config.record_runs import RecordRun
from parties.doctor.check_result import Checklist, Status
from parties.horizontal.first_messages import term_differences
from parties.runs.run_folder import RunFolder
from parties.session.connections import peer_key
from protocols.errors import PeerLost, PeerRefused, ProtocolError
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import Join, TakeTurns
from protocols.messages.message import PROTOCOL_VERSION
from protocols.transport.channel import Channel, Timing, expected
from protocols.transport.keys import KeyPair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener


def compare_terms(
    run: RecordRun, terms: Mapping[str, JsonValue], keys: KeyPair | None, checks: Checklist, *, wait_s: float
) -> None:
    """Compare terms with those that this party connects to, or that come within `wait_s` where it listens.

    A run of this party that is under way is not disturbed: nobody is asked then.
    """
    wiring, folder = run.wiring, RunFolder(run.run_folder)
    timing = Timing(timeout_s=min(run.timeout, wait_s), wait_s=wait_s, stall_s=wait_s)
    mine = Compare(party=run.party, run_id=run.run_id, terms=dict(terms))
    public = {peer.name: peer_key(peer.public_key, peer.name, keys is None) for peer in wiring.peers}
    with checks.checking("peer"), folder.locked() if folder.path.exists() else nullcontext():
        for name, address in wiring.calls.items():
            channel = ConnectedChannel(
                address, name=run.party, peer=name, keys=keys, peer_key=public[name], timing=timing
            )
            _compare(channel, mine, checks, calls=True)
        if wiring.listen is None:
            return
        with checks.checking("address"):
            callers = {name: key for name, key in public.items() if name not in wiring.calls}
            listener = Listener(wiring.listen, callers, keys=keys, timing=timing, on_event=lambda event: None)
            checks.add("address", Status.OK, f"{wiring.listen} is free to listen at")
            try:
                for name in callers:
                    _compare(listener.channel(name), mine, checks, calls=False)
            finally:
                listener.close()


def _compare(channel: Channel, mine: Compare, checks: Checklist, *, calls: bool) -> None:
    """Compare terms with one peer; whoever `calls` speaks first. A run that comes by comes again."""
    peer = channel.peer
    try:
        if calls:
            channel.send(mine)
        theirs = channel.receive()
        if calls or not isinstance(theirs, Join | TakeTurns):
            theirs = expected(peer, theirs, Compare)
        if not calls:
            channel.send(mine)
    except ProtocolError as error:
        is_away = isinstance(error, PeerLost) and not isinstance(error, PeerRefused)
        later = "; it may be started later, within `wait`" if is_away else ""
        checks.add("peer", Status.SKIPPED if is_away else Status.PROBLEM, f"{peer} was not asked: {error}{later}")
        return
    finally:
        channel.close()
    found = term_differences(mine.terms, theirs.terms, peer)
    if theirs.run_id != mine.run_id:
        found.append(f"the run of {peer} is {theirs.run_id!r}, this party's is {mine.run_id!r}")
    for difference in found:
        checks.add("peer", Status.PROBLEM, f"{peer} and this party do not agree: {difference}")
    if not found:
        checks.add("peer", Status.OK, f"{peer} is there, speaks protocol version {PROTOCOL_VERSION} and agrees")

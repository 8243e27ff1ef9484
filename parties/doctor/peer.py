"""Checks with the peers before a run: presence and agreement. A peer that waits for the run is not disturbed."""

from __future__ import annotations

from collections.abc import Mapping

from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Checklist, Status
from parties.session.connections import peer_key
from parties.session.differences import differences, set_difference
from parties.session.handshake import prove_ids, with_point
from protocols.alignment.id_proof import IdProof, id_proof
from protocols.errors import PeerLost, PeerRefused, ProtocolError
from protocols.messages.message import PROTOCOL_VERSION
from protocols.messages.vertical import Hello
from protocols.transport.channel import Channel, Timing, expect
from protocols.transport.keys import KeyPair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener


def ask_active(
    run: PassiveRun,
    mine: Hello,
    keys: KeyPair | None,
    checks: Checklist,
    *,
    wait_s: float,
    password: bytes | None = None,
) -> None:
    """Ask the active party, by a handshake that only looks; with a password, ids are compared too."""
    peer = run.active.name
    timing = Timing(timeout_s=min(run.timeout, wait_s), wait_s=wait_s, stall_s=wait_s)
    theirs = peer_key(run.active.public_key, peer, keys is None)
    channel: ConnectedChannel | None = None
    try:
        channel = ConnectedChannel(run.connect, name=run.party, peer=peer, keys=keys, peer_key=theirs, timing=timing)
        with id_proof(password) as proof:
            greeting = with_point(mine, proof)
            channel.send(greeting)
            _compare(channel, proof, greeting, expect(channel, Hello), checks)
    except ProtocolError as error:
        _note_unanswered(error, checks)
    finally:
        if channel is not None:
            channel.close()


def ask_passive(
    run: ActiveRun,
    mine: Mapping[str, Hello],
    keys: KeyPair | None,
    checks: Checklist,
    *,
    wait_s: float,
    passwords: Mapping[str, bytes] | None = None,
) -> None:
    """Ask every passive party, which may be at its own check or wait for the run."""
    timing = Timing(timeout_s=min(run.timeout, wait_s), wait_s=wait_s, stall_s=wait_s)
    peers = {peer.name: peer_key(peer.public_key, peer.name, keys is None) for peer in run.passive}
    events: list[str] = []
    with checks.checking("address"):
        listener = Listener(run.listen, peers, keys=keys, timing=timing, on_event=events.append)
        try:
            channels: list[Channel] = [listener.channel(peer) for peer in peers]
            for channel in channels:
                try:
                    with id_proof((passwords or {}).get(channel.peer)) as proof:
                        greeting, theirs = with_point(mine[channel.peer], proof), expect(channel, Hello)
                        channel.send(greeting)
                        _compare(channel, proof, greeting, theirs, checks)
                except ProtocolError as error:
                    _note_unanswered(error, checks)
                channel.close()
        finally:
            listener.close()
    for event in events:
        checks.add("connection", Status.WARNING, event)


def _compare(channel: Channel, proof: IdProof | None, mine: Hello, theirs: Hello, checks: Checklist) -> None:
    peer = channel.peer
    sentences = differences(mine, theirs, peer)
    if not sentences and proof is not None and not prove_ids(channel, proof, mine, theirs):
        sentences = [set_difference(mine, theirs)]
    for difference in sentences:
        checks.add("peer", Status.PROBLEM, f"{peer} and this party do not agree: {difference}")
    if not sentences:
        checks.add("peer", Status.OK, f"{peer} is there, speaks protocol version {PROTOCOL_VERSION} and agrees")


def _note_unanswered(error: ProtocolError, checks: Checklist) -> None:
    if isinstance(error, PeerLost) and not isinstance(error, PeerRefused):
        checks.add("peer", Status.SKIPPED, f"only this side was checked: {error}")
    else:
        checks.add("peer", Status.PROBLEM, str(error))

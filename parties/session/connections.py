"""A run file's keys and addresses to open channels, whose every outgoing message is logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parties.config.vertical import ActiveRun, PassiveRun
from parties.runs.run_log import RunLog
from protocols.errors import KeyFileError
from protocols.transport.channel import Channel
from protocols.transport.keys import KeyPair, read_public, read_secret
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

if TYPE_CHECKING:
    # Their recipes stand on half of SciPy, which a run of two parties would load for nothing: a third of a second.
    from parties.config.chain import OwnerRun
    from parties.config.horizontal import CoordinatorRun, WorkerRun


def _follow(channel: Channel, log: RunLog) -> None:
    """Log what goes over a channel."""
    channel.traffic.on_send, channel.traffic.on_receive = log.sent(channel.peer), log.received(channel.peer)
    channel.traffic.on_look = partial(log.step, "looked at")


@contextmanager
def active_channels(run: ActiveRun | CoordinatorRun, insecure: bool) -> Iterator[Callable[[RunLog], list[Channel]]]:
    """How to listen for passive parties or workers. Keys are read at once; the socket opens when the log is there."""
    keys = own_keys(run, insecure)
    listed = run.passive if isinstance(run, ActiveRun) else run.workers
    peers = {peer.name: peer_key(peer.public_key, peer.name, insecure) for peer in listed}
    with ExitStack() as stack:

        def open_channels(log: RunLog) -> list[Channel]:
            def note(event: str) -> None:
                log.step("connection", event)

            listener = Listener(run.listen, peers, keys=keys, timing=run.timing, on_event=note)
            stack.callback(listener.close)
            # At its end it says how often what happened.
            log.before_close.append(listener.close)
            log.step("listening", f"{run.party} waits for {', '.join(peers)} at {listener.address}")
            channels: list[Channel] = [listener.channel(peer) for peer in peers]
            for channel in channels:
                _follow(channel, log)
            return channels

        yield open_channels


@contextmanager
def passive_channel(run: PassiveRun | WorkerRun, insecure: bool) -> Iterator[Callable[[RunLog], Channel]]:
    """How to connect to the active party or the coordinator, likewise."""
    keys = own_keys(run, insecure)
    peer = run.active if isinstance(run, PassiveRun) else run.coordinator
    theirs = peer_key(peer.public_key, peer.name, insecure)
    with ExitStack() as stack:

        def open_channel(log: RunLog) -> Channel:
            log.step("connecting", f"{run.party} connects to {peer.name} at {run.connect}")
            channel = ConnectedChannel(
                run.connect, name=run.party, peer=peer.name, keys=keys, peer_key=theirs, timing=run.timing
            )
            stack.callback(channel.close)
            _follow(channel, log)
            return channel

        yield open_channel


@contextmanager
def chain_channels(run: OwnerRun, insecure: bool) -> Iterator[Callable[[RunLog], dict[str, Channel]]]:
    """How to reach all other owners of a chain, likewise; by name."""
    keys = own_keys(run, insecure)
    public = {owner.name: peer_key(owner.public_key, owner.name, insecure) for owner in run.owners}
    coming = {owner.name: public[owner.name] for owner in run.owners if owner.connect is None}
    with ExitStack() as stack:

        def open_channels(log: RunLog) -> dict[str, Channel]:
            def note(event: str) -> None:
                log.step("connection", event)

            channels: dict[str, Channel] = {}
            if coming:
                assert run.listen is not None
                listener = Listener(run.listen, coming, keys=keys, timing=run.timing, on_event=note)
                stack.callback(listener.close)
                log.before_close.append(listener.close)
                log.step("listening", f"{run.party} waits for {', '.join(coming)} at {listener.address}")
                channels |= {name: listener.channel(name) for name in coming}
            for owner in run.owners:
                if owner.connect is not None:
                    log.step("connecting", f"{run.party} connects to {owner.name} at {owner.connect}")
                    channel = ConnectedChannel(
                        owner.connect,
                        name=run.party,
                        peer=owner.name,
                        keys=keys,
                        peer_key=public[owner.name],
                        timing=run.timing,
                    )
                    stack.callback(channel.close)
                    channels[owner.name] = channel
            for opened in channels.values():
                _follow(opened, log)
            return channels

        yield open_channels


def own_keys(run: ActiveRun | PassiveRun | CoordinatorRun | WorkerRun | OwnerRun, insecure: bool) -> KeyPair | None:
    """The run's own keys; None for a run in plain text."""
    if insecure:
        return None
    if run.secret_key is None:
        raise KeyFileError(
            "the run file names no secret_key; make one with `opboost keygen`, or type --insecure for a run on "
            "loopback. Nothing was sent"
        )
    return read_secret(run.secret_key)


def peer_key(path: Path | None, name: str, insecure: bool) -> bytes | None:
    """A peer's public key; None for a run in plain text."""
    if insecure:
        return None
    if path is None:
        raise KeyFileError(f"the run file names no public_key for {name}. Nothing was sent")
    return read_public(path)

"""Receipt of a peer's release by the active party: checked on arrival, and kept so that it is sent only once."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import RankRows
from opboost.columns import RankColumn
from opboost.denoise.channel import ColumnRelease
from opboost.errors import ParameterError
from opboost.privacy.guarantee import Guarantee
from parties.errors import ConfigError, Disagreement, RunFolderError
from parties.progress import Progress
from parties.storage.atomic_files import make_folder, read_digested, replacing, write_digested
from parties.storage.mapped_ranks import MappedRanks
from parties.storage.serialization import guarantee_from_dict
from parties.vertical.rank_sender import MORE_EVERY, ShortChunks
from parties.vertical.release_offer import offer_digest, rank_type
from parties.vertical.shared_codes import check_ranks, n_offered, releases_of
from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.vertical import Held, MoreRanks, Offer, OfferedColumn, RankChunk
from protocols.private_files import private_opener
from protocols.transport.channel import Channel, receive_any
from protocols.transport.codec import decode, encode

RankBytes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]


class Receipt:
    """One peer's offer and ranks: on disk if a folder is given, from where they are mapped; else in memory.

    Parameters
    ----------
    peer : str
    n_rows : int
    folder : Path, optional
        Ranks of an earlier attempt in it are used again.
    order : ndarray of int64, optional
        Order in which the ranks are sent, if not that of the records: the first is that of row ``order[0]``.
        `columns` are in the order of the records, on disk in ``0.ordered``, ... beside the ranks as sent.

    Attributes
    ----------
    names : tuple of str or None
        The columns that the peer announced at the greeting: no others are taken.

    Notes
    -----
    On disk are ``offer``, a digest and the message as it came, and per column ``0.ranks``, ``1.ranks``, ...: its ranks
    as they came, without gaps. A crash can only cut the last file short. A complete column is compared with the digest
    that the offer names; one that differs is removed, and is asked for again.
    """

    def __init__(
        self, peer: str, n_rows: int, folder: Path | None = None, *, order: NDArray[np.int64] | None = None
    ) -> None:
        self.peer = peer
        self.names: tuple[str, ...] | None = None
        self.columns: list[RankColumn] = []
        self.offer: Offer | None = None
        self.guarantee: Guarantee | None = None
        self._n_rows = n_rows
        self._folder = folder
        self._order = order
        self._is_offered = False
        self._releases: tuple[ColumnRelease | None, ...] = ()
        self._ranks: NDArray[np.unsignedinteger] = np.empty(0, np.uint8)
        self._n_filled = 0
        self._digest = hashlib.sha256()
        self._short = ShortChunks(peer)
        if folder is not None and (folder / "offer").exists():
            try:
                self._take_up(folder)
            except OSError as error:
                raise RunFolderError(f"{folder} cannot be read: {error.strerror}. Nothing was sent") from None

    @property
    def is_complete(self) -> bool:
        """Whether the peer has made its offer in this attempt, and every rank of it is here."""
        return self._is_offered and self.offer is not None and len(self.columns) == len(self.offer.columns)

    def held(self) -> Held | None:
        """The part of the release that is held here, which the peer need not send again."""
        if self.offer is None:
            return None
        return Held(offer=offer_digest(self.offer), column=len(self.columns), row=self._n_filled)

    def offered(self) -> Offer:
        """The peer's offer, which must have come."""
        assert self.offer is not None
        return self.offer

    def released(self) -> list[RankColumn]:
        """The complete columns, with their noise channels and grids where there are any."""
        grids = [None if column.cuts is None else np.array(column.cuts, np.int64) for column in self.offered().columns]
        columns = zip(self.columns, self._releases, grids, strict=True)
        return [replace(column, release=release, cuts=cuts) for column, release, cuts in columns]

    def take(self, message: Message) -> bool:
        """Take the peer's next message; True if it completed a column.

        Raises
        ------
        UnexpectedMessage
            If it is not the one that is due, or holds ranks that the offer does not allow.
        Disagreement
            If the peer offers another release than in an earlier attempt of this run.
        """
        if not self._is_offered:
            if not isinstance(message, Offer):
                raise UnexpectedMessage(f"{self.peer} sent {message.kind!r} where 'offer' was due")
            self._begin(message)
            return False
        if self.is_complete:
            raise UnexpectedMessage(f"{self.peer} sent {message.kind!r} where nothing was due")
        if not isinstance(message, RankChunk):
            raise UnexpectedMessage(f"{self.peer} sent {message.kind!r} where 'rank chunk' was due")
        index = len(self.columns)
        if (message.column, message.start) != (index, self._n_filled):
            raise UnexpectedMessage(
                f"{self.peer} sent rows {message.start}.. of column {message.column} where rows {self._n_filled}.. of "
                f"column {index} were due"
            )
        self._check(message.ranks, self.offered().columns[index])
        self._keep_ranks(index, message.ranks)
        self._fill(message.ranks)
        return len(self.columns) > index

    def _begin(self, offer: Offer) -> None:
        if self.offer is not None and offer_digest(offer) != offer_digest(self.offer):
            raise Disagreement(
                f"{self.peer} offers another release than the one of which this run holds the beginning; choose "
                "another run_id on both sides"
            )
        if not offer.columns:
            raise UnexpectedMessage(f"{self.peer} offers no column")
        if self.names is not None and tuple(column.name for column in offer.columns) != self.names:
            raise UnexpectedMessage(
                f"{self.peer} offers {len(offer.columns)} columns that are not the {len(self.names)} of its greeting"
            )
        for index, offered in enumerate(offer.columns):
            if offered.n_ranks > self._n_rows:
                raise UnexpectedMessage(
                    f"{self.peer} offers {offered.n_ranks} ranks in column {index}, more than the {self._n_rows} "
                    "records"
                )
        try:
            self.guarantee = guarantee_from_dict(offer.guarantee)
            n_promised = sum(map(n_offered, self.guarantee.columns))
        except (ConfigError, ParameterError) as error:
            raise UnexpectedMessage(f"{self.peer} sent a guarantee that cannot be used: {error}") from None
        if n_promised != len(offer.columns):
            raise UnexpectedMessage(
                f"{self.peer} sent a guarantee of {n_promised} columns of ranks with {len(offer.columns)} offered ones"
            )
        check_ranks(offer, self.guarantee, peer=self.peer)
        self._releases = releases_of(offer, self.guarantee, peer=self.peer)
        if self.offer is None:
            self._keep_offer(offer)
            self.offer = offer
            self._start_column()
        self._is_offered = True

    def _check(self, ranks: RankBytes, offered: OfferedColumn) -> None:
        index = len(self.columns)
        if not self._n_filled < self._n_filled + len(ranks) <= self._n_rows:
            raise UnexpectedMessage(
                f"{self.peer} sent rows {self._n_filled}.. of column {index} in a chunk of {len(ranks)}; "
                f"{self._n_rows - self._n_filled} rows were due"
            )
        self._short.count(len(ranks), self._n_rows - self._n_filled)
        if ranks.dtype != rank_type(offered.n_ranks):
            raise UnexpectedMessage(f"{self.peer} sent column {index} in another type than its number of ranks needs")
        highest = offered.n_ranks if offered.has_missing else offered.n_ranks - 1
        if int(ranks.max()) > highest:
            raise UnexpectedMessage(
                f"{self.peer} sent a rank above {highest} in column {index}, which has {offered.n_ranks} ranks"
            )

    def _fill(self, ranks: RankBytes) -> None:
        """Add checked ranks to the column that is under way; a full one is compared with its digest."""
        self._digest.update(np.ascontiguousarray(ranks))
        if self._folder is None:
            self._ranks[self._n_filled : self._n_filled + len(ranks)] = ranks
        self._n_filled += len(ranks)
        if self._n_filled < self._n_rows:
            return
        index = len(self.columns)
        offered = self.offered().columns[index]
        if self._digest.hexdigest() != offered.digest:
            if self._folder is not None:
                (self._folder / f"{index}.ranks").unlink(missing_ok=True)
            raise UnexpectedMessage(f"the ranks of column {index} of {self.peer} are not those that were offered")
        self.columns.append(RankColumn(self.peer, index, offered.name, self._complete(index), offered.n_ranks))
        self._start_column()

    def _complete(self, index: int) -> RankRows:
        """The ranks of a full column in the order of the records."""
        ranks: RankRows = self._ranks
        if self._folder is not None:
            kind = rank_type(self.offered().columns[index].n_ranks)
            ranks = MappedRanks(self._folder / f"{index}.ranks", kind, self._n_rows)
        if self._order is None:
            return ranks
        arrived = ranks[:]
        in_order = np.empty(len(arrived), arrived.dtype)
        in_order[self._order] = arrived
        if self._folder is None:
            return in_order
        place = self._folder / f"{index}.ordered"
        with replacing(place) as unfinished:
            unfinished.write_bytes(in_order.data)
        return MappedRanks(place, in_order.dtype, self._n_rows)

    def _start_column(self) -> None:
        index, offered = len(self.columns), self.offered().columns
        if self._folder is None and index < len(offered):
            self._ranks = np.empty(self._n_rows, dtype=rank_type(offered[index].n_ranks))
        self._n_filled = 0
        self._digest = hashlib.sha256()

    def _keep_offer(self, offer: Offer) -> None:
        if self._folder is None:
            return
        make_folder(self._folder)
        write_digested(self._folder / "offer", bytes(encode(offer)[0]))

    def _keep_ranks(self, index: int, ranks: RankBytes) -> None:
        """Append to a column's file; done when the operating system has it, which outlives this process."""
        if self._folder is None:
            return
        path = self._folder / f"{index}.ranks"
        try:
            with open(path, "ab", opener=private_opener) as file:
                file.write(memoryview(np.ascontiguousarray(ranks)).cast("B"))
        except OSError as error:
            raise RunFolderError(f"{path} cannot be written: {error.strerror}") from None

    def _take_up(self, folder: Path) -> None:
        """Read an earlier attempt's columns up to the first that is incomplete or damaged; the peer sends the rest."""
        content = read_digested(folder / "offer")
        try:
            offer = None if content is None else decode([content])
        except DecodeError:
            offer = None
        if not isinstance(offer, Offer):
            shutil.rmtree(folder)
            return
        self.offer = offer
        self._start_column()
        n_columns = len(offer.columns)
        while len(self.columns) < n_columns and self._take_up_column(folder, offer):
            pass
        # Later columns are sent again in full: remove their files, to which ranks would be appended.
        for index in range(len(self.columns) + 1, n_columns):
            (folder / f"{index}.ranks").unlink(missing_ok=True)

    def _take_up_column(self, folder: Path, offer: Offer) -> bool:
        """Read the next column's file; False if it is incomplete or differs from the offer."""
        index = len(self.columns)
        path, kind = folder / f"{index}.ranks", rank_type(offer.columns[index].n_ranks)
        if not path.exists():
            return False
        n_whole = min(path.stat().st_size // kind.itemsize, self._n_rows)
        if path.stat().st_size != n_whole * kind.itemsize:
            with path.open("r+b") as file:
                file.truncate(n_whole * kind.itemsize)
        try:
            if n_whole:
                self._fill(np.memmap(path, dtype=kind, mode="r"))
        except UnexpectedMessage:
            self._start_column()
        return len(self.columns) > index


def collect(channels: Sequence[Channel], receipts: Mapping[str, Receipt], progress: Progress) -> None:
    """Receive every rank of every offered column, from whichever peer is ready; ask for more as chunks are taken."""
    n_taken = Counter[str]()
    while not all(receipt.is_complete for receipt in receipts.values()):
        channel, message = receive_any(channels)
        receipt = receipts[channel.peer]
        is_column = receipt.take(message)
        if isinstance(message, RankChunk):
            n_taken[channel.peer] += 1
            if n_taken[channel.peer] % MORE_EVERY == 0:
                channel.send(MoreRanks())
        if is_column:
            assert receipt.offer is not None
            progress(f"collecting ranks of {channel.peer}", len(receipt.columns), len(receipt.offer.columns))

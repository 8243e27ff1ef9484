"""Record of the questions that a worker has answered, so that no question gets two answers.

A worker that was started again draws the same coins and noise from the key of its first process
(`parties.horizontal.worker_checkpoint`), tree by tree. So a question that is asked again has the same answer; and a
question in the place of one that was answered is refused, since both answers would have the same noise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import StartTree, WantHistograms, WantTotals
from protocols.messages.message import Message
from protocols.transport.codec import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The questions that a worker has answered, in this process or an earlier one.

    Attributes
    ----------
    n_trees : int
        Trees that were begun. Questions about trees before the last batch are not answered again.
    history : str
        Digest of all messages up to the start of the last tree. The records' privacy accounts follow from these.
    n_questions : int
        Questions of the last batch.
    questions : str
        Digest of these questions, and of all messages up to each.
    n_summed : int
        Number of questions, counted from the last, whose answers were in the last sum. It may be asked for again.
    survivors : tuple of str
        The workers in that sum, if this worker has given its shares of it: it is opened over nobody else again, because
        the difference of two sums would be the answer of a single worker. Two openings have an honest worker in common
        if ``2 threshold > n_workers + c``, for c workers that help the coordinator.
    """

    n_trees: int = 0
    history: str = ""
    n_questions: int = 0
    questions: str = ""
    n_summed: int = 0
    survivors: tuple[str, ...] = ()


class AnsweredQuestions:
    """The questions that a worker was asked, compared with those that it has answered.

    Parameters
    ----------
    answered : Answered
        By earlier processes.
    batch_size : int
        Trees of a batch.

    Attributes
    ----------
    answered : Answered
    now : Answered
        The questions of this process. Like `answered`, the caller sets it to a method's result once that took effect.

    Notes
    -----
    All methods raise `UnexpectedMessage` for a question that would get a second, different answer.
    """

    def __init__(self, answered: Answered, *, batch_size: int) -> None:
        self.answered = answered
        self.now = Answered()
        self._batch_size = batch_size

    def begun(self, history: str) -> Answered:
        """`now` with one more tree; `history` is the digest of all that was told before it."""
        number = self.now.n_trees + 1
        if number == self.answered.n_trees and history != self.answered.history:
            raise UnexpectedMessage(
                "an earlier process of this worker answered for other trees than it is told of now; nothing was sent"
            )
        is_new = self._batch(number) != self._batch(number - 1)
        return replace(Answered() if is_new else self.now, n_trees=number, history=history)

    def asked(self, digest: str) -> Answered:
        """`now` with one more question about the newest tree; `digest` is of it and all that was told up to it."""
        questions = _chained(self.now.questions, digest)
        now = replace(self.now, n_questions=self.now.n_questions + 1, questions=questions)
        if self._batch(now.n_trees) < self._batch(self.answered.n_trees):
            raise UnexpectedMessage("this worker has answered for a later tree; nothing was sent")
        is_other = now.n_questions == self.answered.n_questions and questions != self.answered.questions
        if self._is_in_last_batch and is_other:
            raise UnexpectedMessage("this worker has answered other questions about this tree; nothing was sent")
        return now

    def summed(self, n_wanted: int) -> Answered:
        """`answered` with a sum of the last `n_wanted` answers: the last sum again, or answers that were in none."""
        now = replace(self.now, n_summed=n_wanted)
        if replace(self.answered, survivors=()) == now:
            return self.answered
        if self._is_in_last_batch and now.n_questions - n_wanted < self.answered.n_questions:
            raise UnexpectedMessage("answers that were summed before were asked for in another sum; nothing was sent")
        return now

    def about(self, n_wanted: int) -> bytes:
        """Digest of the last `n_wanted` questions and of all that was told up to them, as `ToldWorkers` has it."""
        return _about(self.now.questions, n_wanted)

    def opened_over(self, survivors: tuple[str, ...]) -> Answered:
        """`answered` with its sum opened over these workers; over no others than before."""
        if self.answered.survivors not in ((), survivors):
            raise UnexpectedMessage(
                "a sum that was opened before was to be opened over other workers; nothing was revealed"
            )
        return replace(self.answered, survivors=survivors)

    @property
    def _is_in_last_batch(self) -> bool:
        return self._batch(self.now.n_trees) == self._batch(self.answered.n_trees)

    def _batch(self, n_trees: int) -> int:
        """Number of the batch of the last of so many trees."""
        return (n_trees - 1) // self._batch_size


class ToldWorkers:
    """Digests of the messages that a coordinator has sent its workers, as each worker computes them.

    Parameters
    ----------
    drawing : bytes
        Digest of the drawing of the public bits.
    """

    def __init__(self, drawing: bytes) -> None:
        self._history, self._questions = hashlib.sha256(drawing), ""

    def note(self, message: Message) -> None:
        """Add a message to the digests."""
        history = history_with(self._history, message)
        if isinstance(message, WantTotals | WantHistograms):
            self._questions = _chained(self._questions, history.hexdigest())
            return
        self._history = history
        if isinstance(message, StartTree) and message.output == 0:
            self._questions = ""

    def about(self, n_wanted: int) -> bytes:
        """Digest of the last `n_wanted` questions and of all that was told up to them."""
        return _about(self._questions, n_wanted)


def history_with(history: hashlib._Hash, message: Message) -> hashlib._Hash:
    """Digest of all messages so far, this one included."""
    extended = history.copy()
    for frame in encode(message):
        extended.update(len(frame).to_bytes(8, "little"))
        extended.update(frame)
    return extended


def _chained(questions: str, digest: str) -> str:
    return hashlib.sha256((questions + digest).encode()).hexdigest()


def _about(questions: str, n_wanted: int) -> bytes:
    return hashlib.sha256(f"{questions} {n_wanted}".encode()).digest()

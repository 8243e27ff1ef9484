"""The active party's labels under `label_epsilon`: drawn once per record, charged to a ledger of its own, and kept.

A record that is trained on again gets the same noise, in any run, so that its runs together tell of its label what one
of them tells. Only another label, another `label_epsilon` or other bounds are drawn, and charged, anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from opboost import rng
from opboost.arrays import Values
from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.label_noise import decode_labels, encode_labels, label_mechanism
from opboost.trees.losses import Loss
from parties.ledger.budget import Budget
from parties.ledger.chain_head import refuse_lost
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.runs.run_folder import LABELS_FILE
from parties.storage.atomic_files import write_json
from parties.storage.sqlite import check_place
from parties.tables.blocks import Block, exact_codes, named_records
from parties.tables.record_ids import Ids


@dataclass(frozen=True, slots=True)
class LabelNoise:
    """What noises labels.

    Attributes
    ----------
    mechanism : ColumnMechanism
        See `opboost.label_noise.label_mechanism`.
    ledger : Path
    """

    mechanism: ColumnMechanism
    ledger: Path

    @classmethod
    def of(
        cls, name: str, loss: Loss, epsilon: float | None, bounds: tuple[float, float] | None, *, ledger: Path
    ) -> LabelNoise | None:
        """The noise that a run file asks for, None without; see `opboost.label_noise.label_mechanism`.

        Raises
        ------
        ParameterError, LedgerError
            Also if no ledger can be where it is to be: parties do not meet then.
        """
        if epsilon is None:
            return None
        refuse_lost(ledger)
        check_place(ledger)
        return cls(label_mechanism(name, loss, epsilon, bounds), ledger)

    def draw(self, labels: Values, ids: Ids, *, run_id: str, peers: Iterable[str], to: Path) -> Values:
        """Noised labels of some records; those that were drawn before are taken from the ledger's store.

        Parameters
        ----------
        labels : ndarray of float64, shape (n_rows,)
        ids : Index of str
            Of the rows.
        run_id : str
        peers : iterable of str
        to : Path
            A run folder, which keeps the guarantee.

        Raises
        ------
        LedgerError
            If the ledger cannot be trusted or used. Nothing was released then.
        """
        block: Block = {"0.exact": exact_codes(encode_labels(self.mechanism, labels)), **named_records(ids)}
        occasion = Occasion(run_id=run_id, task="train", peer=", ".join(sorted(peers)))
        with Ledger(self.ledger) as ledger:
            account = Account(ledger=ledger, budget=Budget(), occasion=occasion, rng=rng.secure())
            account.release([self.mechanism], [block])
        write_json(to / LABELS_FILE, asdict(self.mechanism.guarantee()))
        return decode_labels(self.mechanism, ReleasedColumn.of_marked(self.mechanism.schema, block["0.codes"]))

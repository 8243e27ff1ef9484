"""Privacy guarantee of a training of the federated framework, and its delta."""

from __future__ import annotations

import math
from typing import Any

from opboost.errors import ParameterError, check_delta
from opboost.horizontal.noise.query_account import QueryAccount
from opboost.privacy.accounting import total_mu
from opboost.privacy.gaussian import gaussian_epsilon
from opboost.privacy.guarantee import SEVERAL_RECORDS
from opboost.privacy.record_guarantee import REPLACED, RecordGuarantee
from opboost.sklearn.simulated_rows import PublicTask, account_of_models


def delta_for(epsilon: float, delta: Any, *, is_printed: bool, n_rows: int) -> float:
    """The delta of a training: what was said, 0 without noise, and as printed one over the number of records.

    Raises
    ------
    ParameterError
        If a private fit has none, for one over the number of records makes that number public.
    """
    if math.isinf(epsilon):
        return 0.0
    if delta is None:
        if is_printed:
            return 1.0 / n_rows
        raise ParameterError(
            "a private fit needs a delta. One over the number of records is common, and makes that number public: "
            "say it yourself. Nothing was released"
        )
    return check_delta(delta)


def promise(
    task: PublicTask,
    account: QueryAccount,
    delta: float,
    *,
    n_models: int,
    is_printed: bool,
    is_local: bool,
    reveals_quantiles: bool,
    delta_is_said: bool,
    is_secure: bool,
) -> RecordGuarantee:
    """Privacy guarantee of a query account: epsilon, neighbouring data sets, and what is not protected.

    Parameters
    ----------
    task : PublicTask
    account : QueryAccount
    delta : float
    n_models : int
        That share the account.
    is_printed : bool
        Whether noise is as the paper has it.
    is_local : bool
        Whether records put noise on their own contributions, their features being in the clear.
    reveals_quantiles : bool
        Whether split candidates are quantiles of the data.
    delta_is_said : bool
        Whether delta was given, rather than one over the number of records.
    is_secure : bool
    """
    is_private = bool(account.releases) and not reveals_quantiles
    settings: dict[str, Any] = {}
    hidden = ["what is meant to be public: the schema, the bounds and the settings"]
    if is_local:
        settings["neighbours"] = "two data sets that differ in one record's label"
        settings["protected"] = "The label of any one record, against everyone, whoever adds up included."
        hidden.append("the features, which are in the clear: this is label-LDP only")
    hidden.append(SEVERAL_RECORDS)
    epsilon = account.epsilon(delta) if is_private else math.inf
    if is_private and not delta_is_said:
        hidden.append("the number of records, of which delta is one over")
        if not is_local:
            # Delta makes the noise, so that it is other noise for one record more or less. A record that is replaced by
            # another moves every answer by at most twice as much.
            epsilon = gaussian_epsilon(2 * total_mu(account.releases), delta)
            settings["neighbours"] = REPLACED
    if reveals_quantiles:
        hidden.append("the values of the columns, whose quantiles are the split candidates")
    return RecordGuarantee(
        epsilon=epsilon,
        delta=delta if is_private else 0.0,
        account=account_of_models("exact Gaussian composition" if is_private else "no noise", n_models),
        mode="paper" if is_printed else "certified",
        is_secure=is_secure,
        bounds_are_public=task.bounds_are_public,
        claimed_epsilon=task.epsilon if is_printed and is_private else None,
        not_protected=tuple(hidden),
        **settings,
    )

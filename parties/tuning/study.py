"""Optuna study: trials on the ranks already received, their journal, and the best parameters against the run's own."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from opboost.metrics import default_metric, metric_by_name
from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.kernels.threads import n_threads
from opboost.trees.validation import Metric, ValidationPlan
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, RunFolderError
from parties.progress import Progress, no_progress
from parties.runs.earlier_model import Earlier
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder, write_json
from parties.storage.paths import check_writable, writing
from parties.tuning.kept_release import KeptRelease, read_kept
from parties.tuning.result import Tuned
from parties.tuning.search_space import read_space
from parties.tuning.trial_processes import in_processes
from parties.vertical.party_a import grow_trees
from protocols.private_files import private_opener

# Optuna's lock of the journal is a link to it.
TUNING_FOLDER, TRIALS, LOCK = "tuning", "trials.jsonl", "trials.jsonl.lock"

# Shares of the records: those that trials are compared on, and those that only the end result is scored on.
VALIDATED, TESTED = 0.2, 0.2

# Rounds between two reports of a trial, and without a better score until it ends.
REPORT_EVERY, PATIENCE = 5, 30

# Trials and rounds before the median of others ends a trial.
_STARTUP_TRIALS, _WARM_UP_ROUNDS = 5, 10

_ENDED = TrialState.COMPLETE, TrialState.PRUNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Inputs and options of a tuning.

    Attributes
    ----------
    run_file : Path
    n_trials : int
        In all, those of earlier calls included.
    rounds : int
        Most rounds of a trial, which ends early where they bring nothing.
    metric : str or None
        By default the objective's own.
    space : Path or None
    seconds : float or None
        After which no trial begins.
    jobs : int
        Processes.
    """

    run_file: Path
    n_trials: int = 50
    rounds: int = 1000
    metric: str | None = None
    space: Path | None = None
    seconds: float | None = None
    jobs: int = 1


def tune_parameters(tuning: Tuning, *, progress: Progress = no_progress) -> Tuned:
    """Run trials, and score the best parameters on records that no trial has seen.

    Raises
    ------
    ConfigError, RunFolderError
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run = read_run(tuning.run_file, ActiveRun)
    rows, metric = _Rows.of(run, tuning), _metric(run, tuning)
    folder = run.run_folder / TUNING_FOLDER
    make_folder(folder)
    _cut_torn_line(folder / TRIALS)
    _remove_lost_lock(folder / LOCK)
    model, left_open = RunFolder(run.run_folder).load_joint_model(), run.model.left_open
    own_settings = read_space(tuning.space).inside(rows.everything.job.grown_with(model.choice))
    study = _study(folder, metric)
    # A trial that was interrupted has no score, and is begun anew.
    tried = study.get_trials(deepcopy=False, states=(TrialState.WAITING, *_ENDED))
    if own_settings is not None and not any(
        own_settings in (trial.params, trial.system_attrs.get("fixed_params")) for trial in tried
    ):
        study.enqueue_trial(own_settings)
    if tuning.jobs == 1:
        _run_trials(tuning, 0, rows, progress)
    else:
        in_processes(tuning.jobs, partial(_run_trials, tuning), kept=folder / TRIALS)
    trials = study.get_trials(deepcopy=False)
    if not any(trial.state == TrialState.COMPLETE for trial in trials):
        raise ConfigError("no trial was finished: give more time, or other ranges")
    best = study.best_trial
    if "rounds" not in best.user_attrs:
        raise _damaged(folder / TRIALS)
    chosen = {"learning_rate": rows.learning_rate, **best.params, "n_estimators": best.user_attrs["rounds"]}
    tuned = Tuned(
        metric=metric.name,
        is_higher_better=metric.is_higher_better,
        parameters=chosen,
        own_parameters=run.model.model_dump(mode="json", exclude_unset=True),
        scores=tuple(
            trial.value if trial.state == TrialState.COMPLETE else None for trial in trials if trial.state in _ENDED
        ),
        # Early stopping may have ended the run's own.
        own=rows.tested(run.model.parameters(), left_open, metric, most_rounds=Earlier.of(model).model.n_rounds),
        best=rows.tested(replace(run.model.parameters(), **chosen), left_open - chosen.keys(), metric),
    )
    write_json(folder / "best.json", asdict(tuned))
    return tuned


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The records of a run, those to test on behind the others, and the rate at which its trees learned."""

    everything: KeptRelease
    development: KeptRelease
    n_tested: int
    seed: int
    learning_rate: float

    @classmethod
    def of(cls, run: ActiveRun, tuning: Tuning) -> _Rows:
        if run.continue_from is not None:
            raise ConfigError(
                f"the model of {run.continue_from}, which this run continues, has seen the records that trials are "
                "compared on: leave continue_from out of a run to tune. Nothing was trained"
            )
        kept = read_kept(run, tuning.run_file, purpose="tuning")
        n_rows, seed = len(kept.job.labels), kept.job.seed or 0
        order = np.random.default_rng(seed).permutation(n_rows)
        n_tested = round(TESTED * n_rows)
        if n_tested < 1 or n_rows - n_tested < 2:
            raise ConfigError(f"{n_rows} records are too few to tune on. Nothing was trained")
        rate = kept.job.grown_with(RunFolder(run.run_folder).load_joint_model().choice).learning_rate
        return cls(kept.of_rows(order), kept.of_rows(order[: n_rows - n_tested]), n_tested, seed, rate)

    def tested(
        self, parameters: BoostingParameters, left_open: frozenset[str], metric: Metric, most_rounds: float = math.inf
    ) -> float:
        """Score on the records to test on of trees that are grown on all others."""
        is_tested = np.arange(len(self.everything.job.labels)) >= len(self.everything.job.labels) - self.n_tested
        release = self.everything.validated(ValidationPlan(is_tested, (metric,)))
        parameters = replace(parameters, early_stopping_rounds=None)
        job = replace(release.job, parameters=parameters, left_open=left_open)
        job = replace(job, on_round=lambda report: report.finished >= most_rounds)
        return grow_trees(job, (), release.received, no_progress).history.scores[metric.name][-1]


def _run_trials(tuning: Tuning, number: int, rows: _Rows | None = None, progress: Progress = no_progress) -> None:
    """Run trials in this process until there are enough in all."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run = read_run(tuning.run_file, ActiveRun)
    rows, metric, space = rows or _Rows.of(run, tuning), _metric(run, tuning), read_space(tuning.space)
    plan = ValidationPlan.of_share(
        VALIDATED, len(rows.development.job.labels), (metric,), rng=np.random.default_rng(rows.seed)
    )
    release = rows.development.validated(plan)
    base = replace(
        release.job.parameters,
        n_estimators=tuning.rounds,
        learning_rate=rows.learning_rate,
        early_stopping_rounds=PATIENCE,
        n_jobs=max(1, n_threads() // tuning.jobs),
    )

    def objective(trial: optuna.Trial) -> float:
        def on_round(report: RoundReport) -> None:
            if report.finished % REPORT_EVERY == 0:
                trial.report(report.scores[metric.name], report.finished)
                if trial.should_prune():
                    raise optuna.TrialPruned

        chosen = space.suggest(trial)
        # What no range holds stays open, as in a run with the parameters that are printed.
        left_open = release.job.left_open - {*chosen, "learning_rate", "n_estimators"}
        job = replace(release.job, parameters=replace(base, **chosen), left_open=left_open, on_round=on_round)
        history = grow_trees(job, (), release.received, no_progress).history
        trial.set_user_attr("rounds", history.best_round)
        return history.scores[metric.name][history.best_round - 1]

    def done(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        progress("tuning", trial.number + 1, tuning.n_trials)

    enough = optuna.study.MaxTrialsCallback(tuning.n_trials, states=_ENDED)
    study = _study(run.run_folder / TUNING_FOLDER, metric)
    # With the same seed, a later call would draw what the first one drew.
    seeds = np.random.SeedSequence([rows.seed, number, len(study.get_trials(deepcopy=False))])
    study.sampler = optuna.samplers.TPESampler(seed=int(seeds.generate_state(1)[0]))
    n_left = tuning.n_trials - len(study.get_trials(deepcopy=False, states=_ENDED))
    if n_left <= 0:
        return
    try:
        study.optimize(objective, n_trials=n_left, timeout=tuning.seconds, callbacks=[enough, done])
    except (AssertionError, OSError) as error:
        # Optuna ends in an assertion where it cannot write down that a trial failed either.
        reason = error if isinstance(error, OSError) else error.__context__
        if not isinstance(reason, OSError):
            raise
        raise _unwritable(run.run_folder / TUNING_FOLDER / TRIALS, reason) from None


def _metric(run: ActiveRun, tuning: Tuning) -> Metric:
    loss = run.model.loss()
    return metric_by_name(tuning.metric or default_metric(loss), loss)


def _cut_torn_line(path: Path) -> None:
    """Cut off a last line that a full disk left without its end: Optuna would write its next one behind it."""
    check_writable(path)
    with writing(path):
        if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def _remove_lost_lock(path: Path) -> None:
    """Remove a lock that a killed process left in a folder that was moved since: Optuna would look for it for ever."""
    with writing(path):
        if path.is_symlink() and not path.exists():
            path.unlink(missing_ok=True)


def _study(folder: Path, metric: Metric) -> optuna.Study:
    """The study whose trials lie in the folder's journal.

    Raises
    ------
    RunFolderError
    """
    path = folder / TRIALS
    try:
        with open(path, "ab", opener=private_opener):
            pass
        return optuna.create_study(
            study_name=f"tuning by {metric.name}",
            storage=JournalStorage(JournalFileBackend(str(path))),
            pruner=optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARM_UP_ROUNDS),
            direction="maximize" if metric.is_higher_better else "minimize",
            load_if_exists=True,
        )
    except (AssertionError, KeyError, RecursionError, TypeError, ValueError):
        raise _damaged(path) from None
    except OSError as error:
        raise _unwritable(path, error) from None


def _damaged(path: Path) -> RunFolderError:
    return RunFolderError(f"{path} is damaged; remove it to begin the trials anew. Nothing was trained")


def _unwritable(path: Path, reason: OSError) -> RunFolderError:
    return RunFolderError(
        f"{path} cannot be written: {reason.strerror}. The trials in it are kept, and count next time"
    )

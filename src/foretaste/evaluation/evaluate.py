"""How good a model is on held-out items: every user counts once, ties by expectation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretaste.errors import DatasetError
from foretaste.evaluation.candidates import choose_users
from foretaste.evaluation.config import CandidateRule, checked_lengths
from foretaste.evaluation.definitions import metric_name, parse_metric
from foretaste.evaluation.intervals import mean_interval, wilson_interval
from foretaste.evaluation.metrics import TargetPlaces, user_metrics
from foretaste.evaluation.ranking import Ranked, Ranker
from foretaste.evaluation.result import Evaluation, Metric
from foretaste.models.base import RecommenderModel

if TYPE_CHECKING:
    from foretaste.data.dataset import HeldOut


def evaluate(
    model: RecommenderModel,
    heldout: HeldOut,
    *,
    num_train_users: int,
    protocol: str,
    candidates: str = "full",
    k: Sequence[int],
    seed: int,
    users: NDArray[np.integer] | None = None,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Metrics of ``model`` on ``heldout`` at the list lengths ``k``, computed on its device.

    Args:
        model: scores the catalogue that ``heldout.history`` counts.
        heldout: the users, what the model may know of them, and what it should find.
        num_train_users: users below this number were trained on (`user_state`); the others are
            answered by `fold_in`.
        protocol: how the dataset was split, as it is to be printed.
        candidates: ``full``, ``sampled-N``, ``nvidia-N`` or ``fixed``.
        k: list lengths, each at least 1; beyond the number of candidates, all of them.
        seed: the dataset's seed, which keys the negatives.
        users: rows of ``heldout`` to look at; all of them by default.
        batch: users ranked at once; by default as many as fit 64 MiB of scores.
        progress: called with the number of users done and of all users after each batch.

    Raises SettingError for candidates and lengths that do not exist, DatasetError where nothing
    is held out, the model has another catalogue or no candidates came with the dataset,
    TrainingError for scores that are not finite.
    """
    started = time.perf_counter()
    rule = CandidateRule.parse(candidates)
    lengths = checked_lengths(k)
    asked = heldout if users is None else heldout.rows(users)
    judged = asked.rows(np.flatnonzero(asked.target.lengths()))
    _check(model, judged, rule)
    ranker = Ranker(
        model,
        judged,
        rule,
        num_places=lengths[-1],
        num_train_users=num_train_users,
        seed=seed,
        batch=batch,
    )
    ranked = ranker.run(progress)
    per_user = user_metrics(ranked.places, lengths)
    return Evaluation(
        split=heldout.split,
        protocol=protocol,
        candidates=candidates,
        metrics=_summaries(per_user, ranked.places) | _coverages(ranked, rule, lengths),
        num_users=judged.num_users,
        num_users_without_target=asked.num_users - judged.num_users,
        num_unseen_targets=judged.target.num_interactions - len(ranked.places.user_T),
        num_short_candidate_lists=ranked.num_short,
        num_samples=ranked.num_samples,
        elapsed_s=time.perf_counter() - started,
        user_index=judged.user_index,
        per_user=per_user,
        dataset_digest=heldout.dataset_digest,
    )


def validation_rows(heldout: HeldOut, limit: int = 10_000, *, seed: int) -> NDArray[np.int64]:
    """Rows of ``heldout`` to validate on: at most ``limit`` users with a target, chosen by hash."""
    rows = np.flatnonzero(heldout.target.lengths())
    return rows[choose_users(heldout.user_index[rows], limit, seed)]


def _check(model: RecommenderModel, heldout: HeldOut, rule: CandidateRule) -> None:
    if heldout.num_users == 0:
        raise DatasetError(
            f"the {heldout.split} part holds no user with a held-out item, so there is nothing to "
            "measure; prepare the dataset with more users or other filters"
        )
    if heldout.history.num_items != model.num_items:
        raise DatasetError(
            f"the model knows {model.num_items:,} items, this dataset's catalogue has "
            f"{heldout.history.num_items:,}: evaluate on the dataset the model was trained on"
        )
    if rule.kind == "fixed" and heldout.candidates is None:
        raise DatasetError(
            f"candidates is fixed, and none came with the {heldout.split} part; use full or "
            "sampled-99, or prepare the dataset with candidates of its own"
        )


def _summaries(per_user: dict[str, NDArray[np.float64]], places: TargetPlaces) -> dict[str, Metric]:
    """Means over users with their intervals; Wilson's for a share of users (HR, one target)."""
    one_target = bool((places.num_targets_U == 1).all())
    summaries = {}
    for name, values in per_user.items():
        mean = float(values.mean())
        if one_target and parse_metric(name)[0] == "hr":
            low, high = wilson_interval(mean, len(values))
        else:
            low, high = mean_interval(values)
        summaries[name] = Metric(name=name, value=mean, low=low, high=high)
    return summaries


def _coverages(ranked: Ranked, rule: CandidateRule, lengths: Sequence[int]) -> dict[str, Metric]:
    """The share of the catalogue in any user's list; sampled lists say nothing of it."""
    if rule.kind != "full":
        return {}
    names = {metric_name("coverage", length): length for length in lengths}
    return {
        name: Metric(
            name=name, value=float((ranked.best_place_I < length).mean()), low=None, high=None
        )
        for name, length in names.items()
    }

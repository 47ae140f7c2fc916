"""Blending: a run made of other runs of the same dataset, weighted by what validation says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, permutations
from pathlib import Path

import torch
from torch import Tensor

from foretaste._util.climb import climb
from foretaste._util.settings import validate
from foretaste.data.dataset import Dataset
from foretaste.errors import SettingError
from foretaste.evaluation.config import parse_metric
from foretaste.evaluation.evaluator import evaluate, validation_rows
from foretaste.models.base import RecommenderModel, UserState
from foretaste.models.blend.config import BlendConfig, Member
from foretaste.models.blend.model import Blend
from foretaste.models.memory import free_on
from foretaste.ops.device import resolve_device
from foretaste.runs.run import Run, dataset_of, load_model
from foretaste.training.api import train_run
from foretaste.training.auto import check_candidates, selected_metric
from foretaste.training.callbacks import Callback
from foretaste.training.config import TrainingConfig
from foretaste.training.request import TrainRequest

Weights = tuple[float, ...]

_STEPS = (0.1, 0.05)
"""Shares that move from one run to another, one for each round."""

_MOST_WEIGHTINGS = 15
"""Weightings that are tried, for each run. Climbs took 16 to 22 for three runs, and 18 to 48 for
four."""

# Share of free memory for the scores that a search keeps.
SHARE_OF_MEMORY = 0.25


def blend(
    runs: Sequence[Run | Path | str],
    *,
    weights: Sequence[float] | None = None,
    select_by: str = "auto",
    candidates: str = "full",
    dataset: Dataset | Path | str | None = None,
    run: Path | str | None = None,
    runs_root: Path | str = "runs",
    overwrite: bool = False,
    device: str = "auto",
    callback: Callback | None = None,
) -> Run:
    """Make a run of other runs of the same dataset: their scores, standardised and summed.

    The new run has the weights of all their models, needs none of the runs, and answers like any
    other.

    Args:
        runs: two or more finished runs, of any models but blends.
        weights: a number for each run; by default `blend_weights` finds them.
        select_by, candidates: as in `blend_weights`; the test part is ranked by the candidates.
        dataset: the dataset of the runs; by default where it was when the first was trained.
        run: the new run's directory, new or empty; by default a new one in ``runs_root``.
        overwrite: replace the run at ``run``.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        callback: as in `train`.

    Raises SettingError if the runs cannot be blended: fewer than two, one twice, not finished,
    of another dataset or blends themselves.
    """
    opened = _open_blendable(runs)
    data = dataset_of(opened[0], dataset)
    if weights is None:
        weights = blend_weights(
            opened, select_by=select_by, candidates=candidates, dataset=data, device=device
        )
    elif select_by != "auto":
        raise SettingError(
            f"select_by is {select_by}, by which weights are found, and weights are given; "
            "leave out one of them"
        )
    weights = validate("weights", weights, tuple[float, ...])
    if len(weights) != len(opened):
        raise SettingError(
            f"weights are {len(weights)}, and the runs {len(opened)}; give each run one"
        )
    request = TrainRequest.of(
        "blend",
        data,
        model_config=_config(opened, weights),
        config=TrainingConfig(device=device, candidates=candidates),
        run=run,
        runs_root=runs_root,
        overwrite=overwrite,
    )
    return train_run(request, callback)


def blend_weights(
    runs: Sequence[Run | Path | str],
    *,
    select_by: str = "auto",
    candidates: str = "full",
    dataset: Dataset | Path | str | None = None,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, ...]:
    """Return the weights of a blend with the best metric a search finds on the validation part.

    It begins with equal shares, and moves shares from one run to another as long as the metric
    grows. The steps are tenths, then twentieths. Models score once, and their scores are kept
    while memory lasts.

    Args:
        select_by, candidates: the metric, and what held-out items are ranked against, as in
            `TrainingConfig`. The search and the final evaluation use the same metric.
        progress: called with the number of weightings tried, and the most that may be.

    Raises SettingError if there is no validation part, or the runs cannot be blended.
    """
    opened = _open_blendable(runs)
    data = dataset_of(opened[0], dataset)
    if not data.has_split("validation"):
        raise SettingError(
            f"{data.path} has no validation part to find weights on; give them: --weights "
            f"{' '.join(['1'] * len(opened))} (weights=... in Python)"
        )
    settings = TrainingConfig(select_by=select_by, candidates=candidates)
    check_candidates(data, candidates)
    manifest = data.manifest
    metric = selected_metric(settings, manifest.protocol)
    kind, length = parse_metric(metric)
    place = resolve_device(device)
    config = _config(opened, [1.0] * len(opened))
    num_items = config.num_listed(data.manifest.num_items, data.manifest.num_listed_items)
    model = _Remembering(config, manifest.num_train_users, num_items).to(place).eval()
    model.compose([load_model(run, place) for run in opened])
    heldout = data.heldout("validation", order=config.uses_order)
    heldout = heldout.rows(validation_rows(heldout, settings.validation_users))
    num_tried, most = count(1), _MOST_WEIGHTINGS * len(opened)

    def value_of(weights: Weights) -> float:
        model.begin(weights)
        evaluation = evaluate(
            model, heldout, candidates=candidates, k=(length,), coverage=kind == "coverage"
        )
        if progress is not None:
            progress(next(num_tried), most)
        return evaluation[metric]

    return chosen_weights(len(opened), value_of)


class _Remembering(Blend):
    """A blend that is evaluated with one weighting after another, on the same users and candidates.

    It keeps the scores of its models, batch by batch, while they take a quarter of free memory.
    """

    def compose(self, models: Sequence[RecommenderModel]) -> None:
        super().compose(models)
        self._kept = defaultdict[int, dict[int, Tensor]](dict)  # by batch, by number of the model
        self._free_bytes = int(free_on(self.device) * SHARE_OF_MEMORY)

    def begin(self, weights: Sequence[float]) -> None:
        """Take other weights, before the first batch."""
        self._weights = weights
        self._batch = 0

    def _weighted_models(self) -> Iterator[tuple[RecommenderModel, float]]:
        """Yield the models that have a weight and must score this batch."""
        for number in self._missing():
            model = self.members[number]
            assert isinstance(model, RecommenderModel)
            yield model, self._weights[number]

    def _missing(self) -> list[int]:
        return [
            number
            for number, weight in enumerate(self._weights)
            if weight > 0.0 and number not in self._kept[self._batch]
        ]

    def _sum(self, state: UserState, item_index_BK: Tensor | None) -> Tensor:
        kept, missing = self._kept[self._batch], self._missing()
        scores = dict(kept)
        for number, scores_BC in zip(missing, self.standardize(state, item_index_BK), strict=True):
            scores[number] = scores_BC
            # Batches come in the same order for every weighting, so they are known by number.
            if scores_BC.nbytes <= self._free_bytes:
                kept[number] = scores_BC
                self._free_bytes -= scores_BC.nbytes
        self._batch += 1
        weighted = enumerate(self._weights)
        return torch.stack([scores[n] * weight for n, weight in weighted if weight > 0.0]).sum(0)


def _open_blendable(runs: Sequence[Run | Path | str]) -> list[Run]:
    """Return the runs, of which a blend can be made."""
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    if len(opened) < 2:
        raise SettingError(f"blend needs two runs or more, got {len(opened)}")
    paths = [run.path.resolve() for run in opened]
    for run, path in zip(opened, paths, strict=True):
        if paths.count(path) > 1:
            raise SettingError(f"{run.path} is named twice; name each run once")
        if run.config.model == "blend":
            raise SettingError(f"{run.path} is a blend itself; name the runs that it was made of")
        if not run.is_finished:
            raise SettingError(f"{run.path} cannot be blended: {run.why_unfinished()}")
        if run.config.dataset.digest != opened[0].config.dataset.digest:
            raise SettingError(
                f"{run.path} was trained on another dataset than {opened[0].path}; "
                "name runs of the same one"
            )
    return opened


def _config(runs: Sequence[Run], weights: Sequence[float]) -> BlendConfig:
    # The blend lists what the runs with a weight list.
    listed = [run.num_items for run, weight in zip(runs, weights, strict=True) if weight]
    num_items = max(listed, default=0)
    members = {
        str(number): Member(
            run=str(run.path.resolve()),
            model=run.config.model,
            settings=run.config.model_config,
            weight=weight,
            num_items=None if run.num_items == num_items else run.num_items,
        )
        for number, (run, weight) in enumerate(zip(runs, weights, strict=True))
    }
    return BlendConfig(members=members)


def chosen_weights(num_weights: int, value_of: Callable[[Weights], float]) -> Weights:
    """Return weights with a sum of 1 and a high value.

    The search climbs from equal weights and moves shares between all pairs of runs, also to a run
    without a share. No penalty pulls them back to equal weights. On ten splits of ml-100k,
    MovieLens small, steam and lastfm, with 61 to 376 people in the choice, penalties of up to 1
    (the metric times people, at squared distance 1) were no better than none on the test part, and
    stronger ones were worse.
    """
    equal = (1.0 / num_weights,) * num_weights
    found: dict[Weights, float] = {}

    def measure(weights: Weights) -> float:
        if weights not in found:
            found[weights] = value_of(weights)
        return found[weights]

    def move(step: float, pair: tuple[int, int], weights: Weights) -> Weights | None:
        giver, taker = pair
        by = min(step, weights[giver])
        if not by or len(found) >= _MOST_WEIGHTINGS * num_weights:
            return None
        other = list(weights)
        # Weights are rounded, so a weighting that two sums of steps reach is one key and is
        # measured once.
        other[giver], other[taker] = round(other[giver] - by, 4), round(other[taker] + by, 4)
        return tuple(other)

    best, value = equal, measure(equal)
    for step in _STEPS:
        before = None
        ways = [[partial(move, step, pair)] for pair in permutations(range(num_weights), 2)]
        while best != before:
            before = best
            best, value = climb(best, value, measure, ways)
    return best

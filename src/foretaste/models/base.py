"""The interface of every model: what evaluation, recommendation and training ask of it.

Scoring needs four methods of `RecommenderModel`. Training needs the rest: `NeuralModel` is fitted
by gradient steps, `SweepModel` by sweeps, `ClosedFormModel` in one pass, `ComposedModel` from runs.

Shape suffixes: B users, K candidates per user, I items of the catalogue, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from foretaste.errors import UnsupportedError
from foretaste.models.batches import Batch, Batches, WholeData
from foretaste.models.config import ModelConfig, Setting, TrainingSize
from foretaste.models.parts import SINGLE, Shards
from foretaste.ops.buffers import Buffers
from foretaste.ops.forks import survive_forks
from foretaste.ops.histories import HistoryTensors as HistoryTensors  # `foretaste.models` has it

if TYPE_CHECKING:
    from foretaste.models.scorer import BaseScorer

Implementation = Literal["chunked", "triton"]
"""The form of the operations in `foretaste.ops` that have several."""

FitProgress = Callable[[str, int, int], None]
"""Called with the name of a step of fitting, the amount done, and the whole amount."""


@dataclass(frozen=True, eq=False)
class UserState:
    """Knowledge of a model about B users; opaque to callers, sliced by user (``state[a:b]``).

    ``has_history_B`` is False for users of whom the model `knows` nothing: they are answered in
    popularity order.
    """

    has_history_B: Tensor
    parts: tuple[Tensor | HistoryTensors | UserState, ...]

    def __len__(self) -> int:
        return self.has_history_B.numel()

    def __getitem__(self, rows: slice) -> UserState:
        return UserState(self.has_history_B[rows], tuple(part[rows] for part in self.parts))


StateParts = tuple[Tensor | HistoryTensors | UserState, ...]


class RecommenderModel(nn.Module, ABC):
    """A model that scores the catalogue for known and new users.

    Scores are float32; only their order within a user means anything. A model may have only some
    rows of its tables of users, the rows of the consecutive ``users``. Other users are unknown to
    the model.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[ModelConfig]]

    user_rows: tuple[str, ...] = ()
    """Parameters with a row for each user."""

    item_rows: tuple[str, ...] = ()
    """Parameters with a row for each item."""

    value_rows: tuple[str, ...] = ()
    """Parameters with a row for each feature value."""

    memory_advice = (
        "choose smaller sizes, or keep fewer users and items (--min-user-interactions, "
        "--min-item-users)"
    )
    """Advice if the memory does not suffice."""

    config: Any
    """The model's settings, an instance of ``config_class``."""

    users: range
    """The users whose rows this instance has."""

    is_part: bool
    """Whether this instance holds only the rows of `users`; other ranks hold the rest."""

    scores_known_users_only = False
    """True if a `scorer` has no new users, because they are fitted by gradient steps."""

    def __init__(
        self, config: Any, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__()
        survive_forks()
        self.config = config
        self.users = range(num_users) if users is None else users
        self.is_part = users is not None
        self.num_users = num_users
        self.num_items = num_items
        # Otherwise cached results of the old weights would be used with the new weights.
        self.register_load_state_dict_post_hook(_clear_cache)  # type: ignore[no-untyped-call]
        self.item_count_I: Tensor
        # Counts in float32 are exact up to 16.7 million users.
        self.register_buffer("item_count_I", torch.zeros(num_items))

    @property
    def device(self) -> torch.device:
        return self.item_count_I.device

    def clear_cache(self) -> None:
        """Drop everything computed from the weights; called when the weights or the mode change."""

    def train(self, mode: bool = True) -> Self:
        """Set the mode as `nn.Module.train` does, and call `clear_cache`."""
        self.clear_cache()
        return super().train(mode)

    def rows_of(self, name: str) -> range | None:
        """Return the rows of a parameter that this part has; None if it has all."""
        return self.users if name in self.user_rows and self.is_part else None

    def rows_of_users(self, table_UD: Tensor, user_index_B: Tensor) -> Tensor:
        """Return rows [B, D] of a table of ``users``; zeros for users whose rows are not here."""
        if not self.is_part:
            return table_UD.index_select(0, user_index_B)
        is_here_B = (user_index_B >= self.users.start) & (user_index_B < self.users.stop)
        row_BD = table_UD.new_zeros(len(user_index_B), table_UD.shape[1])
        row_BD[is_here_B] = table_UD[user_index_B[is_here_B] - self.users.start]
        return row_BD

    def weight_bytes(self) -> int:
        """Return the memory of the model's parameters and buffers."""
        return _bytes_of(self.parameters()) + _bytes_of(self.buffers())

    def training_bytes(self, device: torch.device) -> int:
        """Return the memory that training takes on a device, without batches."""
        return self.weight_bytes()

    def expect(self, weights: Mapping[str, Tensor]) -> None:
        """Make room for saved weights that only some trainings have."""

    def count_items(self, histories: HistoryTensors, parts: Shards = SINGLE) -> None:
        """Learn how many training users have each item: the order for users without a history.

        ``histories`` are of ``users``; ``parts`` adds the counts of other ranks, if this instance
        holds only some users.
        """
        self.item_count_I[:] = torch.bincount(histories.item_index, minlength=self.num_items)
        if self.is_part:
            self.item_count_I[:] = parts.total(self.item_count_I)

    def popularity(self) -> Tensor:
        """Return scores [I] for users without a history: how many training users have each item."""
        return self.item_count_I

    def sync_shards(self, parts: Shards) -> None:
        """Learn from the other parts what scores of new users need; called before scoring."""

    keeps_user_rows = False
    """True if later items change nothing for a user known from training, because a row of a table
    answers that user."""

    def user_state(
        self,
        user_index_B: Tensor,
        histories: HistoryTensors,
        is_grown_B: Tensor | None = None,
    ) -> UserState:
        """Return the state of users known from training, row for row with their ``histories``.

        ``is_grown_B`` is True for users whose history has items that the training did not have.
        """
        # Check here and again in `fold_in`, because a process may fork after it has made the model.
        survive_forks()
        return UserState(self.knows(histories), self._known_users(user_index_B, histories))

    def fold_in(self, histories: HistoryTensors) -> UserState:
        """Return the state of users unseen in training, from their histories alone."""
        survive_forks()
        return UserState(self.knows(histories), self._new_users(histories))

    @torch.no_grad()
    def score_catalogue(self, state: UserState) -> Tensor:
        """Return scores [B, I] of the catalogue, in bounded memory; callers may overwrite them."""
        return self._popularity_without_history(state, self._score_catalogue(state), None)

    @torch.no_grad()
    def score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        """Return scores [B, K] of the given items of each user."""
        scores_BK = self._score_candidates(state, item_index_BK)
        return self._popularity_without_history(state, scores_BK, item_index_BK)

    @torch.no_grad()
    def similarity(self, item_index_B: Tensor, item_index_C: Tensor | None = None) -> Tensor:
        """Return the cosine similarity of item vectors, [B, C] to others or [B, I] to all items.

        Models that can tell that two items are unrelated give -inf.
        """
        vectors_ID, unit = self.item_vectors(), nn.functional.normalize
        others_CD = vectors_ID if item_index_C is None else vectors_ID[item_index_C]
        return unit(vectors_ID[item_index_B]) @ unit(others_CD).T

    def knows(self, histories: HistoryTensors) -> Tensor:
        """Return True for histories [B] with an item that tells the model something; other users
        are answered in popularity order."""
        return histories.lengths() > 0

    def known_items(self) -> Tensor:
        """Return whether each item [I] tells the model anything: it `knows` histories with one."""
        item_I = torch.arange(self.num_items, dtype=torch.int32, device=self.device)
        offsets = torch.arange(self.num_items + 1, device=self.device)
        return self.knows(HistoryTensors(offsets, item_I, self.num_items))

    def history_weights(self, histories: HistoryTensors) -> Tensor | None:
        """Return the weight [N] of each item of the histories in the scores; None if all are 1."""
        return None

    def optimize_for_small_batches(self) -> None:
        """Rearrange weights in memory for answers to few users at a time, if that is faster."""

    def item_vectors(self) -> Tensor:
        """Return learned vectors of the items, [I, D]."""
        raise UnsupportedError(
            f"{self.name} learns nothing about items that could be compared; "
            "train ials, neumf, vae or ease for similar items"
        )

    def user_vectors(self, state: UserState) -> Tensor:
        """Return vectors of users, [B, D]: the learned part of their state."""
        parts = [part for part in state.parts if isinstance(part, Tensor)]
        if not parts:
            reason = f"{self.name} has no vectors of users; train ials, neumf or vae for them"
            raise UnsupportedError(reason)
        return torch.cat(parts, dim=1)

    def index_vectors(self) -> Tensor:
        """Return vectors [I, D] of the items: their inner product with a query is the score."""
        raise UnsupportedError(
            f"scores of {self.name} are no inner products of vectors; train ials, gmf, sasrec or "
            "vae for an index"
        )

    def query_vectors(self, state: UserState) -> Tensor:
        """Return vectors of users, [B, D], for a search in an index of `index_vectors`."""
        self.index_vectors()  # raises UnsupportedError
        return self.user_vectors(state)

    def scorer(self, *, known_users: bool) -> BaseScorer:
        """Return a plain module of its present scores: of known users by index, or any history."""
        raise UnsupportedError(f"{self.name} cannot be exported: it has no scorer")

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> StateParts:
        return self._new_users(histories)

    @abstractmethod
    def _new_users(self, histories: HistoryTensors) -> StateParts: ...

    @abstractmethod
    def _score_catalogue(self, state: UserState) -> Tensor: ...

    @abstractmethod
    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor: ...

    def _popularity_without_history(
        self, state: UserState, scores: Tensor, item_index_BK: Tensor | None
    ) -> Tensor:
        # These users are rare: without one nothing as large as the scores is written.
        if bool(state.has_history_B.all()):  # sync, once a batch
            return scores
        popularity = self.popularity()
        if item_index_BK is not None:
            popularity = popularity[item_index_BK]
        return torch.where(state.has_history_B[:, None], scores, popularity)


class IterativeModel(RecommenderModel):
    """A model fitted epoch by epoch, evaluated between epochs and resumed within them."""

    implementation: Implementation = "chunked"
    """Which implementation the training operations use."""

    @classmethod
    @abstractmethod
    def auto_settings(cls, size: TrainingSize, config: Any) -> dict[str, Setting]:
        """Return values for ``auto`` training settings, for a size and a `resolved` config."""

    @abstractmethod
    def make_batches(
        self,
        histories: HistoryTensors,
        *,
        batch_size: int,
        seed: int,
        padded: bool = False,
        parts: Shards = SINGLE,
    ) -> Batches:
        """Return the batches that the model learns from, or this rank's part of each batch.

        Args:
            histories: of ``users``. A rank that has only the rows of these users takes their
                samples of each batch; a rank that has all rows takes some users of a batch.
            padded: bring every full batch to one size, for a step recorded as a CUDA graph.
            parts: the parts in which the model is trained.
        """

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Fill the parameters as the model's paper does; the same for a seed on every device."""

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """Return values by name that change during training, at an update."""
        return {}

    def choose_fold_in(
        self, value: Callable[[], float], best: float
    ) -> tuple[dict[str, Setting], float]:
        """Take the fold-in settings that are best for new users; return them and the metric.

        Returns the settings by name, none if there is nothing to choose. ``value`` computes the
        metric that chooses, for the current model. ``best`` is its value in training.
        """
        return {}, best

    def join(self, parts: dict[str, dict[str, Tensor]], alpha: float) -> None:
        """Set the parameters that only the joined model has, from its parts' weights by model.

        ``alpha`` is the share of the first.
        """
        raise NotImplementedError


class NeuralModel(IterativeModel):
    """A model trained by gradient steps: ``model(batch)`` is the batch's loss."""

    compute_dtype: torch.dtype | None = None
    """Dtype of the large products of training; None means the weights' dtype."""

    def __init__(
        self, config: Any, num_users: int, num_items: int, users: range | None = None
    ) -> None:
        super().__init__(config, num_users, num_items, users)
        self._memory = Buffers()
        self.frozen_encoder: dict[str, Tensor] = {}
        """Earlier values of parameters, by name, for a training that compares with them."""

    def training_bytes(self, device: torch.device) -> int:
        """Return the memory of the weights, their gradients and Adam's two moments."""
        return 4 * _bytes_of(self.parameters()) + _bytes_of(self.buffers())

    def step_bytes(self, batches: Batches) -> int | None:
        """Return the most memory of a step, beside `training_bytes`; None if it is unknown."""
        return None

    def train(self, mode: bool = True) -> Self:
        """Set the mode as `nn.Module.train` does; outside training, free the steps' memory."""
        if not mode:
            self._memory.clear()
        return super().train(mode)

    def waits_for_device(self, num_samples: int, implementation: Implementation) -> bool:
        """Return whether a step of that many samples has a shape that the device computes.

        Then the host waits for the device in every step, and no CUDA graph can record it.
        """
        return False

    def kernel_dtypes(self) -> dict[str, torch.dtype]:
        """Return the dtype of each operation with a Triton kernel, by name in `checks.CASES`."""
        return {}

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return parameters by the name of the optimizer that updates them.

        Tables with no rows are among them, tables with no columns are not.
        """
        learned = (one for one in self.parameters() if one.requires_grad)
        return {"all": [one for one in learned if one.shape[1:].numel()]}

    def touched_items(self, batch: Batch) -> Tensor | None:
        """Return items of a batch, repeats kept: gradients of other `item_rows` rows are zero.

        None if all rows may have a gradient.
        """
        return None

    def updated_by(self, batch: Batch) -> str | None:
        """Return the name of the one parameter group a batch updates; None if it updates all.

        Together with the batches, this lets a model alternate between phases.
        """
        return None


class SweepModel(IterativeModel):
    """A model fitted by sweeps: each epoch improves its parameters by all the data at once."""

    @abstractmethod
    def sweep(self, batch: WholeData) -> Tensor:
        """Do one sweep over the one batch; returns the loss, a scalar on the device."""


class ClosedFormModel(RecommenderModel):
    """A model fitted in one pass over the training histories."""

    counts: dict[Hashable, Any] | None = None
    """Counts of earlier fits to the same histories, for models that fit from counts. None if no fit
    follows."""

    def fitting_note(self, histories: HistoryTensors) -> str | None:
        """Return work and memory of fitting the histories, for people; None if little."""
        return None

    @abstractmethod
    def fit(self, histories: HistoryTensors, progress: FitProgress) -> None:
        """Fit to the training histories, one row per training user."""


class ComposedModel(ClosedFormModel):
    """A model made of other runs of the same dataset, fitted in one pass."""

    @abstractmethod
    def run_paths(self) -> Sequence[str]:
        """Return directories of the runs."""

    @abstractmethod
    def compose(self, models: Sequence[RecommenderModel]) -> None:
        """Take the models of these runs, in their order, before `fit`."""


def _clear_cache(model: nn.Module, keys: object) -> None:
    assert isinstance(model, RecommenderModel)
    model.clear_cache()


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

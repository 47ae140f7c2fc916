"""The seam every model shares: four questions, asked by evaluation, recommendation and export.

Shape suffixes: B users, K candidates per user, I items of the catalogue, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from foretaste.errors import UnsupportedError
from foretaste.ops.buffers import Buffers
from foretaste.ops.histories import HistoryTensors

Implementation = Literal["auto", "chunked", "triton", "compiled"]
"""Of the operations in `foretaste.ops` that have several."""


@dataclass(frozen=True, eq=False)
class UserState:
    """What a model knows of B users; opaque to callers, sliced by user (``state[a:b]``).

    ``has_history_B`` is False for users nothing is known of: they are answered in popularity order.
    """

    has_history_B: Tensor
    parts: tuple[Tensor | HistoryTensors, ...]

    def __len__(self) -> int:
        return self.has_history_B.numel()

    def __getitem__(self, rows: slice) -> UserState:
        return UserState(self.has_history_B[rows], tuple(part[rows] for part in self.parts))


class RecommenderModel(nn.Module, ABC):
    """A model that scores the catalogue for known and new users.

    Scores are float32; only their order within a user means anything.
    """

    name: str

    memory_advice = (
        "choose smaller sizes, or keep fewer users and items (--min-user-interactions, "
        "--min-item-users)"
    )
    """What to do where it does not fit."""

    def __init__(self, num_users: int, num_items: int) -> None:
        super().__init__()
        self.num_users = num_users
        self.num_items = num_items
        self.item_count_I: Tensor
        self.register_buffer("item_count_I", torch.zeros(num_items))

    @property
    def device(self) -> torch.device:
        return self.item_count_I.device

    def weight_bytes(self) -> int:
        """Memory of its weights and of what else it keeps."""
        return _bytes_of(self.parameters()) + _bytes_of(self.buffers())

    def training_bytes(self, device: torch.device) -> int:
        """Memory that training it takes on a device, but for its batches."""
        return self.weight_bytes()

    def count_items(self, histories: HistoryTensors) -> None:
        """Learn how many training users have each item: the order for users without a history."""
        counts = torch.bincount(histories.item_index, minlength=self.num_items)
        self.item_count_I.copy_(counts)

    def user_state(self, user_index_B: Tensor, histories: HistoryTensors) -> UserState:
        """State of users known from training, row for row with their ``histories``."""
        return UserState(histories.lengths() > 0, self._known_users(user_index_B, histories))

    def fold_in(self, histories: HistoryTensors) -> UserState:
        """State of users unseen in training, from their histories alone."""
        return UserState(histories.lengths() > 0, self._new_users(histories))

    @torch.no_grad()
    def score_catalogue(self, state: UserState) -> Tensor:
        """Scores [B, I] of the whole catalogue; what lies between is of bounded memory."""
        return self._popularity_without_history(state, self._score_catalogue(state), None)

    @torch.no_grad()
    def score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        """Scores [B, K] of the given items of each user."""
        scores_BK = self._score_candidates(state, item_index_BK)
        return self._popularity_without_history(state, scores_BK, item_index_BK)

    @torch.no_grad()
    def similarity(self, item_index_B: Tensor) -> Tensor:
        """Similarity [B, I] of items to every item: cosine of the item vectors."""
        vectors_ID = nn.functional.normalize(self.item_vectors())
        return vectors_ID[item_index_B] @ vectors_ID.T

    def item_vectors(self) -> Tensor:
        """What the model learned of each item, [I, D]."""
        raise UnsupportedError(
            f"{self.name} learns nothing about items that could be compared; "
            "train neumf, vae or ease for similar items"
        )

    def user_vectors(self, state: UserState) -> Tensor:
        """Vectors of users, [B, D]: the learned part of their state."""
        parts = [part for part in state.parts if isinstance(part, Tensor)]
        if not parts:
            raise UnsupportedError(
                f"{self.name} has no vectors of users; train neumf or vae for them"
            )
        return torch.cat(parts, dim=1)

    @abstractmethod
    def _known_users(
        self, user_index_B: Tensor, histories: HistoryTensors
    ) -> tuple[Tensor | HistoryTensors, ...]: ...

    @abstractmethod
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor | HistoryTensors, ...]: ...

    @abstractmethod
    def _score_catalogue(self, state: UserState) -> Tensor: ...

    @abstractmethod
    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor: ...

    def _popularity_without_history(
        self, state: UserState, scores: Tensor, item_index_BK: Tensor | None
    ) -> Tensor:
        if bool(state.has_history_B.all()):
            return scores
        popularity = (
            self.item_count_I if item_index_BK is None else self.item_count_I[item_index_BK]
        )
        return torch.where(state.has_history_B[:, None], scores, popularity)


class NeuralModel(RecommenderModel):
    """A model trained by gradient steps: ``model(batch)`` is the batch's loss."""

    config: Any
    """Its settings."""

    compute_dtype: torch.dtype | None = None
    """What the large products of training are computed in; None means as the weights are."""

    user_rows: tuple[str, ...] = ()
    """Parameters with a row for each user."""

    item_rows: tuple[str, ...] = ()
    """Parameters with a row for each item."""

    implementation: Implementation = "auto"
    """What the operations of a training step are computed by."""

    def __init__(self, num_users: int, num_items: int) -> None:
        super().__init__(num_users, num_items)
        self._memory = Buffers()

    def training_bytes(self, device: torch.device) -> int:
        """Its weights, a gradient of each and Adam's two moments."""
        return 4 * _bytes_of(self.parameters()) + _bytes_of(self.buffers())

    def train(self, mode: bool = True) -> Self:
        """As `nn.Module.train`; outside training the memory of training steps is not kept."""
        if not mode:
            self._memory.clear()
        return super().train(mode)

    def waits_for_device(self, num_samples: int) -> bool:
        """Whether the loss of so many samples takes what only the device knows: a shape, say.

        Then the host waits for a GPU in every step, which cannot be recorded as a CUDA graph.
        """
        return False

    def schedule(self, update: int, updates_per_epoch: int) -> dict[str, float]:
        """What changes as training goes on, by name, as it stands at an update."""
        return {}

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Fill the parameters as the model's paper does; the same for a seed on every device."""


class ClosedFormModel(RecommenderModel):
    """A model fitted in one pass over the training histories."""

    def what_fitting_does(self) -> str | None:
        """What fitting computes and the memory it takes, for people; None where that is little."""
        return None

    @abstractmethod
    def fit(self, histories: HistoryTensors) -> None:
        """Fit to the training histories, one row per training user."""


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

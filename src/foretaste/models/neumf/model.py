"""NeuMF (He et al. 2017, arXiv 1708.05031), with GMF and the MLP alone as its halves.

Shape suffixes: B rows, K candidates per row, U users, I items, F factors, E embedding width of the
tower, H width of its first layer, D of its last.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foretaste._util.climb import climb
from foretaste.models.base import Implementation, NeuralModel, UserState
from foretaste.models.batches import Batch, power_of_two
from foretaste.models.config import ModelConfig, Setting, TrainingSize
from foretaste.models.neumf.batches import InteractionBatch, InteractionBatches
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NegativesConfig, NeuMFConfig
from foretaste.models.neumf.fold_in import UserFit, UserPrior
from foretaste.models.parts import SINGLE, Shards
from foretaste.ops import neumf_loss
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.neumf_loss import chunked
from foretaste.ops.neumf_loss.inputs import (
    InteractionInputs,
    Objective,
    Samples,
    TowerDropout,
    linear,
    with_item_scores,
    with_users,
)
from foretaste.ops.random import Purpose, fill_normal_, fill_uniform_, stream_key
from foretaste.ops.segments import gather

if TYPE_CHECKING:
    from foretaste.models.scorer import Scorer

_EMBEDDING_STD = 0.01
_MANY = 10_000_000
"""Number of interactions from which data are large and get settings of their own."""

_PRIOR_FACTOR = 0.3
"""Factor between neighbouring prior weights in the search."""


class NeuMF(NeuralModel):
    """Scores ``output . [product of factors ; tower of embeddings]`` for a user and an item.

    `GMF` leaves out the tower, `MLP` the factors: their widths are zero.
    """

    name = "neumf"
    config_class: ClassVar[type[ModelConfig]] = NeuMFConfig
    user_rows: tuple[str, ...] = ("user_factors", "user_embedding")
    item_rows: tuple[str, ...] = ("item_factors", "item_embedding")
    scores_known_users_only = True
    keeps_user_rows = True

    def __init__(
        self,
        config: NeuMFConfig | GMFConfig | MLPConfig,
        num_users: int,
        num_items: int,
        users: range | None = None,
    ) -> None:
        super().__init__(config.resolved(num_items), num_users, num_items, users)
        num_rows = len(self.users)
        factors: int = getattr(config, "factors", 0)
        layers: tuple[int, ...] = getattr(config, "layers", ())
        widths = (layers[0] // 2, layers[-1]) if layers else (0, 0)
        self.dropout: float = getattr(config, "dropout", 0.0)
        self.user_factors = nn.Parameter(torch.empty(num_rows, factors))
        self.item_factors = nn.Parameter(torch.empty(num_items, factors))
        self.user_embedding = nn.Parameter(torch.empty(num_rows, widths[0]))
        self.item_embedding = nn.Parameter(torch.empty(num_items, widths[0]))
        self.tower = nn.ModuleList(
            nn.Linear(width, next_width) for width, next_width in pairwise(layers)
        )
        self.output = nn.Linear(factors + widths[1], 1)
        self.objective = Objective(config.loss)
        # Cosines are summed unweighted: their weights stay at one (`reset_parameters`).
        self.output.weight.requires_grad_(not config.scores_cosines)
        # Softmax compares scores of one user, to all of which a bias adds the same.
        self.output.bias.requires_grad_(not config.is_softmax)
        prior_weight = torch.tensor(config.resolved_prior_weight, dtype=torch.float64)
        self.prior_weight: Tensor
        self.register_buffer("prior_weight", prior_weight)  # saved: validation can choose another
        self._user_prior: UserPrior | None = None
        self._frozen_inputs: InteractionInputs | None = None

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: NegativesConfig) -> dict[str, Setting]:
        """Return NVIDIA's settings from 10 M interactions on, for large batches of few negatives.

        Smaller data get a lower rate, and batches that grow with the negatives. The rate is lower
        still for many negatives and few interactions a user: GMF's cosines showed it, and a tower
        was not tried. Below 10 M, cosines start at twice the rate, which then falls to 0, unless a
        constant rate is requested.
        """
        samples_each: int = 1 + config.num_negatives
        every = (
            2 if size.protocol == "held-out-users" else 1
        )  # a validation costs more than an epoch
        settings: dict[str, Setting] = {"epochs": 40, "eval_every": every, "patience": 5}
        # Adam's 0.25 and 0.5 forget too fast for the noise of smaller batches.
        is_large = size.num_interactions >= _MANY and (size.batch_size or 1 << 20) >= 1 << 18
        if is_large and samples_each <= 16:
            adam = {"learning_rate": 0.0045, "beta1": 0.25, "beta2": 0.5}
            return settings | {"batch_size": 1 << 20} | adam
        is_brief = samples_each > 16 and size.num_interactions < 20 * size.num_users
        adam = {"learning_rate": 0.0005 if is_brief else 0.002, "beta1": 0.9, "beta2": 0.999}
        if config.scores_cosines and not size.constant_rate and size.num_interactions < _MANY:
            # A falling rate lost for neumf on ml-100k and steam, and gained on lastfm: without
            # cosines it stays constant.
            settings = {"epochs": 12 if is_brief else 20, "eval_every": 4, "patience": 0}
            settings |= {"learning_rate_schedule": "cosine"}
            adam["learning_rate"] *= 2
        largest = power_of_two((1 << 16) * samples_each // 5, 1 << 11, 1 << 20)
        # A hundred updates an epoch, however small the data: patience counts evaluations.
        smallest = power_of_two((1 << 6) * samples_each // 5, 1 << 6, 1 << 11)
        share = size.num_interactions * samples_each // 100
        return settings | {"batch_size": power_of_two(share, smallest, largest)} | adam

    def make_batches(
        self,
        histories: HistoryTensors,
        *,
        batch_size: int,
        seed: int,
        padded: bool = False,
        parts: Shards = SINGLE,
    ) -> InteractionBatches:
        return InteractionBatches(histories, self.config, batch_size, seed, parts)

    @torch.no_grad()
    def join(self, parts: dict[str, dict[str, Tensor]], alpha: float) -> None:
        """Set the output layer to ``[alpha h_GMF ; (1 - alpha) h_MLP]``, and its bias likewise.

        A user's and item's logit is then ``alpha`` times GMF's and ``1 - alpha`` times the tower's
        (He et al. 2017, section 3.4.1).
        """
        gmf, mlp = parts["gmf"], parts["mlp"]
        for name, parameter in self.output.named_parameters():
            halves = (alpha * gmf[f"output.{name}"], (1.0 - alpha) * mlp[f"output.{name}"])
            joined = torch.cat(halves, dim=1) if name == "weight" else halves[0] + halves[1]
            parameter.copy_(joined)

    def choose_fold_in(
        self, value: Callable[[], float], best: float
    ) -> tuple[dict[str, Setting], float]:
        """Return the weight of the prior of new users, unless one was given.

        The search climbs from the weight of training in factors of 0.3.
        """
        # No weight suits all data. On steam, of ten items a person, gmf has an NDCG@100 of 0.450
        # with 0.03 and 0.314 with 1; on lastfm it has 0.383 with both.
        if self.config.prior_weight is not None:
            return {}, best

        def set_weight(weight: float) -> None:
            self.prior_weight.fill_(weight)
            self.eval()  # clears results of the previous weight

        def measure(weight: float) -> float:
            set_weight(weight)
            return value()

        # After a kill the weights may hold a chosen one already, so this starts from the settings.
        start = float(self.config.resolved_prior_weight)
        directions = [partial(operator.mul, by) for by in (_PRIOR_FACTOR, 1 / _PRIOR_FACTOR)]
        weight, best = climb(start, best, measure, [directions])
        set_weight(weight)
        return {"prior_weight": weight}, best

    def reset_parameters(self, seed: int) -> None:
        """Fill embeddings by N(0, 0.01²), weights uniformly and biases by 0.

        The tower is Glorot-uniform; the output is LeCun-uniform, or 1 for cosines.
        """
        self.clear_cache()
        for number, (name, parameter) in enumerate(self.named_parameters()):
            key = stream_key(seed, Purpose.INITIALISE, number)
            if name == "output.weight" and self.config.scores_cosines:
                nn.init.ones_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name in self.user_rows + self.item_rows:
                rows = self.rows_of(name)
                fill_normal_(parameter, key, _EMBEDDING_STD, rows.start if rows else 0)
            elif name == "output.weight":
                # A uniform value within b has the variance b² / 3. LeCun's is 1 / inputs, so b =
                # sqrt(3 / n).
                fill_uniform_(parameter, key, math.sqrt(3.0 / parameter.shape[1]))
            else:
                # Glorot's variance is 2 / (inputs + outputs), so b = sqrt(6 / (n + m)).
                fill_uniform_(parameter, key, math.sqrt(6.0 / sum(parameter.shape)))

    def forward(self, batch: InteractionBatch) -> Tensor:
        """Return the batch's loss: weighted sum over its samples."""
        item_index_BK = batch.item_index_BK
        items = None
        if self.waits_for_device(batch.num_samples, self.implementation):
            # A small batch projects only the items that it has. unique() decides a shape, so the
            # host waits for a GPU here.
            items, item_index_BK = torch.unique(item_index_BK, return_inverse=True)
        tables = self._user_tables()
        user_rows = gather(batch.user_index_B, *tables, buffers=self._memory, name="user gradient")
        item_rows = self._item_rows(items)
        dropout = None
        if self.training:
            first_sample = batch.first_row * batch.item_index_BK.shape[1]
            dropout = TowerDropout(self.dropout, batch.dropout_key, first_sample)
        inputs = self._inputs(user_rows, item_rows, self.compute_dtype)
        return neumf_loss.loss(
            self._adjust_logits(inputs, items),
            Samples(item_index_BK, batch.label_BK, batch.weight_BK, self.objective),
            dropout,
            compute_dtype=self.compute_dtype,
            buffers=self._memory,
            implementation=self.implementation,
        )

    def waits_for_device(self, num_samples: int, implementation: Implementation) -> bool:
        """Return True for fewer samples than items: only their distinct items are projected."""
        return num_samples < self.num_items

    def kernel_dtypes(self) -> dict[str, torch.dtype]:
        table_dtype = self.output.weight.dtype
        return {"neumf_loss": self.compute_dtype or table_dtype}

    def touched_items(self, batch: Batch) -> Tensor | None:
        assert isinstance(batch, InteractionBatch)
        return batch.item_index_BK.flatten()

    def item_vectors(self) -> Tensor:
        return torch.cat(self._item_rows(None), dim=1)

    @torch.no_grad()
    def scorer(self, *, known_users: bool) -> Scorer:
        from foretaste.models.neumf.scorer import InteractionScorer

        users = self._project_users(self._user_tables())
        return InteractionScorer(with_users(self._freeze_items(), *users))

    def _user_tables(self) -> list[Tensor]:
        return [self.get_parameter(name) for name in self.user_rows]

    def _item_rows(self, items: Tensor | None) -> list[Tensor]:
        tables: list[Tensor] = [self.get_parameter(name) for name in self.item_rows]
        if items is None:
            return tables
        return gather(items, *tables, buffers=self._memory, name="item gradient")

    def _inputs(
        self, user_rows: list[Tensor], item_rows: list[Tensor], dtype: torch.dtype | None = None
    ) -> InteractionInputs:
        """Return the operations' inputs from gathered rows; the tower's first layer is split."""
        # W [u ; i] + b = W_u u + (W_i i + b): each user and each item is projected once.
        user_product_BF, user_tower_BH = self._project_users(user_rows, dtype)
        item_product_IF = self._factors(item_rows[0])
        item_tower_IH = item_rows[1]
        if self.tower:
            first, width = self._layers()[0], item_rows[1].shape[1]
            item_tower_IH = linear(item_rows[1], first.weight[:, width:], first.bias, dtype)
        factors = user_rows[0].shape[1]
        # A logit is linear in the output weights: the temperature divides these, not each logit.
        return InteractionInputs(
            user_product_BF=user_product_BF,
            item_product_IF=item_product_IF,
            user_tower_BH=user_tower_BH,
            item_tower_IH=item_tower_IH,
            output_product_F=self.output.weight[0, :factors] / self.config.divisor,
            output_tower_D=self.output.weight[0, factors:],
            output_bias_1=self.output.bias,
            hidden=tuple(p for layer in self._layers()[1:] for p in layer.parameters()),
        )

    def _adjust_logits(
        self, inputs: InteractionInputs, items: Tensor | None = None
    ) -> InteractionInputs:
        """Return the inputs of a loss; with ``logit_adjustment`` scores have log popularity added.

        Only the loss has it. Lists are made without, and lean away from popular items (Menon et
        al. 2021, equation 10).
        """
        if not (weight := self.config.logit_adjustment):
            return inputs
        count_I = self.item_count_I if items is None else self.item_count_I.index_select(0, items)
        adjustment_I = weight * count_I.to(self.item_factors.dtype).clamp(min=1.0).log()
        return with_item_scores(inputs, adjustment_I)

    def _project_users(
        self, rows: Sequence[Tensor], dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return rows of the user tables to the users' sides of the product and of the tower."""
        product_BF = self._factors(rows[0])
        if not self.tower:
            return product_BF, rows[1]
        weight_HE = self._layers()[0].weight[:, : rows[1].shape[1]]
        return product_BF, linear(rows[1], weight_HE, None, dtype)

    def _project_back(
        self, rows: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return gradients by both sides of `_project_users` to those by its rows."""
        by_product_BF, by_tower_BH = gradients
        if self.config.scores_cosines:
            length_B1 = rows[0].norm(dim=1, keepdim=True).clamp_(min=1e-12)
            # u = r / |r|, so dL/dr = (g - (g . u) u) / |r|, with g the gradient by u.
            unit_BF = rows[0] / length_B1
            along_B1 = (by_product_BF * unit_BF).sum(1, keepdim=True)
            by_product_BF = (by_product_BF - along_B1 * unit_BF) / length_B1
        if self.tower:
            by_tower_BH = by_tower_BH @ self._layers()[0].weight[:, : rows[1].shape[1]]
        return by_product_BF, by_tower_BH

    def _factors(self, rows_BF: Tensor) -> Tensor:
        """Return rows of factors as they are multiplied: of length one for cosines."""
        return F.normalize(rows_BF) if self.config.scores_cosines else rows_BF

    def _layers(self) -> list[nn.Linear]:
        return [layer for layer in self.tower if isinstance(layer, nn.Linear)]

    def _known_users(self, user_index_B: Tensor, histories: HistoryTensors) -> tuple[Tensor, ...]:
        tables = self._user_tables()
        return tuple(self.rows_of_users(table.detach(), user_index_B) for table in tables)

    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor, ...]:
        fit = UserFit(
            prior=self._prior(),
            project=self._project_users,
            project_back=self._project_back,
            frozen=self._adjust_logits(self._freeze_items()),
            objective=self.objective,
            num_negatives=self.config.num_negatives,
        )
        return fit.rows(histories)

    def _prior(self) -> UserPrior:
        """Return the prior of new users from the trained rows; kept as `_freeze_items` is."""
        prior = self._user_prior
        if prior is None or self.training or prior.means[0].device != self.device:
            assert not self.is_part, "the prior is of all users: see `sync_shards`"
            prior = self._learn_prior(SINGLE)
        return prior

    def sync_shards(self, parts: Shards) -> None:
        if self.is_part:
            self._learn_prior(parts)

    def _learn_prior(self, parts: Shards) -> UserPrior:
        tables, weight = self._user_tables(), self.prior_weight.item()
        self._user_prior = UserPrior.of(tables, self.num_users, weight, parts)
        return self._user_prior

    def _score_catalogue(self, state: UserState) -> Tensor:
        return chunked.catalogue_logits(self._state_inputs(state))

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        return chunked.logits(self._state_inputs(state), item_index_BK)

    @torch.no_grad()
    def _state_inputs(self, state: UserState) -> InteractionInputs:
        """Return the frozen items, and the users of a state projected."""
        rows = [part for part in state.parts if isinstance(part, Tensor)]
        return with_users(self._freeze_items(), *self._project_users(rows))

    @torch.no_grad()
    def _freeze_items(self) -> InteractionInputs:
        """Return all items projected and all weights, detached, without users.

        It is kept until the mode is set or weights are loaded, and never in training.
        """
        frozen = self._frozen_inputs
        if frozen is None or self.training or frozen.device != self.device:
            no_users = [table[:0] for table in self._user_tables()]
            tensors = self._inputs(no_users, self._item_rows(None)).tensors()
            frozen = InteractionInputs.of(tuple(tensor.detach() for tensor in tensors))
            self._frozen_inputs = frozen
        return frozen

    def clear_cache(self) -> None:
        self._user_prior = None
        self._frozen_inputs = None


class GMF(NeuMF):
    """The factors alone."""

    name = "gmf"
    config_class = GMFConfig

    def index_vectors(self) -> Tensor:
        items = self._freeze_items()
        # A logit is the sum over factors of weight x user x item, plus the bias.
        weighted_IF = items.item_product_IF * items.output_product_F
        return torch.cat([weighted_IF, items.output_bias_1.expand(self.num_items, 1)], dim=1)

    def query_vectors(self, state: UserState) -> Tensor:
        return F.pad(self._state_inputs(state).user_product_BF, (0, 1), value=1.0)


class MLP(NeuMF):
    """The tower alone."""

    name = "mlp"
    config_class = MLPConfig

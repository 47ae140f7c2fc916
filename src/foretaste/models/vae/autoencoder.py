"""The parts that every autoencoder over histories has: a bag of table rows in, a softmax out.

Shape suffixes: B users, I items, H first hidden width, D last hidden width, L latent width,
K candidates per user, c users of a chunk.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from foretaste.models.base import Implementation, NeuralModel, UserState
from foretaste.models.batches import Batches
from foretaste.models.parts import SINGLE, Shards
from foretaste.models.scorer import Scorer
from foretaste.models.softmax import catalogue_loss
from foretaste.models.vae.batches import HistoryBatch, HistoryBatches
from foretaste.ops import embedding_bag
from foretaste.ops.dense import candidate_products, linear
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.random import from_row, normals

_MAX_LAID_OUT_BYTES = 1 << 26


class HistoryAutoencoder(NeuralModel):
    """Encodes a history into a latent vector, and decodes that into a score for every item.

    ``config`` says ``latent``, ``dropout`` and ``sampled_softmax``.
    """

    item_rows = ("encoder_table", "output.weight", "output.bias")

    encoder_table: nn.Parameter
    output: nn.Linear

    def make_batches(
        self,
        histories: HistoryTensors,
        *,
        batch_size: int,
        seed: int,
        padded: bool = False,
        parts: Shards = SINGLE,
    ) -> Batches:
        return HistoryBatches(histories, batch_size, seed, padded=padded, parts=parts)

    def waits_for_device(self, num_samples: int, implementation: Implementation) -> bool:
        """Return True without the Triton kernels, which alone take batches padded to one size, and
        with ``sampled_softmax``, because the items of the batch decide shapes."""
        return self.config.sampled_softmax is not None or implementation != "triton"

    def kernel_dtypes(self) -> dict[str, torch.dtype]:
        table_dtype = self.encoder_table.dtype
        return {"embedding_bag": table_dtype, "softmax_loss": self.compute_dtype or table_dtype}

    def item_vectors(self) -> Tensor:
        return self.output.weight

    def index_vectors(self) -> Tensor:
        # The bias is one more column; a query has 1 in its place.
        return torch.cat([self.output.weight, self.output.bias[:, None]], dim=1)

    @torch.no_grad()
    def query_vectors(self, state: UserState) -> Tensor:
        return nn.functional.pad(self._decode(self.user_vectors(state)), (0, 1), value=1.0)

    def optimize_for_small_batches(self) -> None:
        """Transpose the output layer in memory, up to a size that each process can afford."""
        weight_ID = self.output.weight
        if self.device.type == "cpu" and weight_ID.nbytes <= _MAX_LAID_OUT_BYTES:
            # Shape and values stay, only the strides change: `scores_of` looks at them.
            weight_ID.data = weight_ID.data.T.contiguous().T

    def scorer(self, *, known_users: bool) -> Scorer:
        return _AutoencoderScorer(self)

    @abstractmethod
    def _encode(
        self, histories: HistoryTensors, dropout: float = 0.0, key: int | Tensor = 0
    ) -> Tensor:
        """Return the code of each history: the latent vectors' means in its first L columns."""

    @abstractmethod
    def code_of(self, first_BH: Tensor) -> Tensor:
        """Return what `_encode` returns, from the histories' summed, normalised table rows."""

    def _decode(self, latent_BL: Tensor) -> Tensor:
        """Return the last hidden layer [B, D]; the output layer is applied where needed."""
        return latent_BL

    def _bag(
        self,
        table_IH: Tensor,
        histories: HistoryTensors,
        dropout: float = 0.0,
        key: int | Tensor = 0,
    ) -> Tensor:
        """Return summed table rows [B, H] of the histories' items, after dropout and scaling."""
        return embedding_bag.encode(
            table_IH,
            histories,
            dropout=dropout,
            key=key,
            buffers=self._memory,
            implementation=self.implementation,
        )

    def _noise(self, batch: HistoryBatch, code_BC: Tensor) -> Tensor:
        """Standard normal numbers [B, L] for a batch's latent vectors; zeros outside training."""
        if not self.training:
            return code_BC.new_zeros(len(code_BC), self.config.latent)
        # A user's numbers follow from the place in the whole batch, so ranks and slices draw the
        # same.
        row_B1 = torch.arange(len(code_BC), device=self.device)[:, None]
        # Each word gives two columns of a row.
        column_W = torch.arange(-(-self.config.latent // 2), device=self.device)
        key = from_row(batch.noise_key, batch.first_row)
        noise_BW2 = normals(key, (row_B1 << 32) + column_W)
        return noise_BW2.flatten(1)[:, : self.config.latent]

    def _kl_weights(self, batch: HistoryBatch, weight: float, dtype: torch.dtype) -> Tensor:
        """Return weights [B] of the users' KL terms, by the length of the history (Shenbin et al.
        2020, section 3.5), as parts of a mean over the batch's users."""
        return batch.histories.lengths().to(dtype) * (weight / batch.num_samples)

    def _likelihood_loss(
        self, hidden_BD: Tensor, batch: HistoryBatch, *, trains_output: bool = True
    ) -> Tensor:
        """Return ``-log likelihood`` of a batch or a part of it: a mean over the batch's users."""
        weight_ID, bias_I = self.output.weight, self.output.bias
        return catalogue_loss(
            self,
            batch,
            hidden_BD,
            weight_ID if trains_output else weight_ID.detach(),
            bias_I if trains_output else bias_I.detach(),
            batch.histories,
        )

    @torch.no_grad()
    def _new_users(self, histories: HistoryTensors) -> tuple[Tensor]:
        return (self._encode(histories)[:, : self.config.latent],)

    def _score_catalogue(self, state: UserState) -> Tensor:
        return self.scores_of(self.user_vectors(state))

    def scores_of(self, latent_BL: Tensor) -> Tensor:
        """Return scores [B, I] of the catalogue for latent vectors."""
        weight_ID = self.output.weight
        # `optimize_for_small_batches` puts columns together. BLAS then makes scores of 1 to 64
        # users up to twice as fast as oneDNN from rows.
        product = linear if weight_ID.is_contiguous() else nn.functional.linear
        return product(self._decode(latent_BL), weight_ID, self.output.bias)

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        hidden_BD = self._decode(self.user_vectors(state))
        products_BK = candidate_products(hidden_BD, self.output.weight, item_index_BK)
        return products_BK.add_(self.output.bias[item_index_BK])


class _AutoencoderScorer(Scorer):
    def __init__(self, model: HistoryAutoencoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, known_BI: Tensor, user_index_B: Tensor | None) -> Tensor:
        length_B1 = known_BI.sum(1, keepdim=True)
        # x / |x|: a history of n ones has the length sqrt(n).
        first_BH = known_BI @ self.model.encoder_table * length_B1.clamp(min=1.0).rsqrt()
        code_BC = self.model.code_of(first_BH)
        return self.model.scores_of(code_BC[:, : self.model.config.latent])

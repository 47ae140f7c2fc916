"""A model of your own: an item scores by how often it was together with those of the history."""

from dataclasses import dataclass

import torch

from foretaste.models import ClosedFormModel, ModelConfig, Scorer


@dataclass(frozen=True, kw_only=True)
class CooccurrenceConfig(ModelConfig):
    """Co-occurrence: items that are often together with those of the history."""

    has_epochs = has_large_products = False
    power: float = 0.5
    """Divides counts by the users of the item to this power: the higher, the less popular."""


class Cooccurrence(ClosedFormModel):
    name, config_class = "cooccurrence", CooccurrenceConfig

    def __init__(self, config, num_users, num_items):
        super().__init__(config, num_users, num_items)
        self.register_buffer("weight_II", torch.zeros(num_items, num_items))

    def fit(self, histories, progress):
        self.count_items(histories)
        known_UI = histories.to_dense()
        together_II = (known_UI.T @ known_UI).fill_diagonal_(0)
        self.weight_II.copy_(together_II / self.item_count_I.clamp(min=1) ** self.config.power)

    def _new_users(self, histories):
        return (histories.to_dense() @ self.weight_II,)

    def _score_catalogue(self, state):
        return state.parts[0].clone()

    def _score_candidates(self, state, item_index_BK):
        return state.parts[0].gather(1, item_index_BK)

    def item_vectors(self):
        return self.weight_II

    def scorer(self, *, known_users):
        return CooccurrenceScorer(self.weight_II)


class CooccurrenceScorer(Scorer):
    def __init__(self, weight_II):
        super().__init__()
        self.register_buffer("weight_II", weight_II)

    def forward(self, known_BI, user_index_B):
        return known_BI @ self.weight_II


if __name__ == "__main__":
    # Without a package and a run: fit it, and measure it on the test part of a dataset.
    from foretaste import prepare
    from foretaste.data import GenerateConfig, generate
    from foretaste.evaluation import evaluate
    from foretaste.ops.histories import HistoryTensors

    dataset = prepare(generate(GenerateConfig()).table, "datasets/films", protocol="leave-one-out")
    train = dataset.train
    model = Cooccurrence(CooccurrenceConfig(power=0.6), train.num_users, train.num_items)
    pairs = train.offsets, train.item_index, train.num_items
    model.fit(HistoryTensors.from_numpy(*pairs, device="cpu"), lambda *_: None)
    print(evaluate(model, dataset.heldout("test"), k=10))

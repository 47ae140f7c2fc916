"""Settings as keywords of the verbs, for type checkers.

``python -m tests.typed_keywords`` writes this from the configs, which declare them.
"""

from pathlib import Path
from typing import Literal, TypedDict

ModelName = Literal[
    "neumf",
    "gmf",
    "mlp",
    "vae",
    "dae",
    "recvae",
    "ials",
    "popularity",
    "ease",
    "slist",
    "sasrec",
    "itemknn",
    "rp3beta",
]
"""The models of foretaste. One of another package, or a name that is known at run time, goes into
a `TrainRequest`."""


class DataKeywords(TypedDict, total=False):
    """Settings of a preparation."""

    user_column: str | None
    item_column: str | None
    time_column: list[str] | tuple[str, ...] | str | None
    time_format: str | None
    delimiter: str | None
    columns: list[str] | tuple[str, ...] | None
    encoding: str
    quote: Literal["double", "backslash", "none"]
    layout: Literal["pairs", "lists"]
    rating_column: str | None
    user_id_type: Literal["auto", "integer", "text"]
    item_id_type: Literal["auto", "integer", "text"]
    title_column: str | None
    query: str | None
    protocol: Literal[
        "auto", "leave-one-out", "held-out-users", "temporal", "new-items", "unseen", "none"
    ]
    validation: Literal["hold-out", "none"]
    filters: Literal["auto", "none", "reference"]
    min_user_interactions: int | None
    min_item_users: int | None
    min_rating: float | None
    weight_column: str | None
    event_column: str | None
    events: list[str] | tuple[str, ...] | None
    half_life: str | None
    weight_scale: Literal["linear", "log"] | None
    empty_ids: Literal["refuse", "drop"]
    empty_values: list[str] | tuple[str, ...] | None
    order: Literal["rows"] | None
    features: list[str] | tuple[str, ...] | None
    num_heldout_users: int | None
    seed: int
    engine: Literal["duckdb", "spark"]
    spark_master: str | None
    memory_limit: str | None


class PrepareKeywords(DataKeywords, total=False):
    """Settings of `prepare`."""

    threads: int | None


class CompeteKeywords(DataKeywords, total=False):
    """Settings of `compete`."""

    epochs: int | Literal["auto"]
    batch_size: int | Literal["auto"]
    learning_rate: float | Literal["auto"]
    learning_rate_schedule: Literal["constant", "cosine", "auto"]
    schedule_epochs: int | None
    beta1: float | Literal["auto"]
    beta2: float | Literal["auto"]
    eps: float
    ema: float | Literal["auto"]
    device: str
    precision: Literal["fp32", "tf32", "bf16", "fp16", "auto"]
    loss_scale: float | None
    kernels: Literal["auto", "chunked", "triton"]
    cuda_graphs: bool
    eval_every: int | Literal["auto"]
    eval_after: int
    warm_up_epochs: int
    patience: int | Literal["auto"]
    target: float | None
    select_by: str
    search: bool
    validation_users: int
    evaluation_batch: int | None
    checkpoint_every_s: float
    candidates: str


class TrainKeywords(CompeteKeywords, total=False):
    """Settings of `train`, `tune_model` and `fit`, of every model."""

    factors: int | Literal["auto"]
    layers: list[int] | tuple[int, ...]
    dropout: float | Literal["auto"]
    loss: Literal["bce", "softmax"]
    logit_adjustment: float
    prior_weight: float | None
    negatives: int | Literal["auto"]
    verified_negatives: bool
    batch_layout: Literal["grouped", "shuffled"]
    temperature: float | None
    hidden: list[int] | tuple[int, ...]
    latent: int
    activation: Literal["tanh", "relu"]
    kl_weight: float | Literal["auto"]
    anneal_cap: float | None
    anneal_steps: int | None
    anneal_epochs: float | None
    l2: float | Literal["auto"]
    sampled_softmax: int | Literal["auto"] | None
    width: int
    encoder_passes: int
    feature_weight: float | Literal["auto"]
    unobserved_weight: float | Literal["auto"]
    regularization: float | Literal["auto"]
    feature_power: float | Literal["auto"]
    ignore_weights: bool
    neighbors: int | Literal["all", "auto"]
    new_item_factor: float
    user_power: float | Literal["auto"]
    recency: float | Literal["auto"]
    window: int
    set_weight: float | Literal["auto"]
    blocks: int
    heads: int
    max_length: int | Literal["auto"]
    shrinkage: float | Literal["auto"]
    cut: Literal["target", "source", "auto"]
    alpha: float | Literal["auto"]
    beta: float | Literal["auto"]
    pretrained_gmf: Path | str | None
    pretrained_mlp: Path | str | None
    pretrained_alpha: float
    log_path: Path | str | None
    results_dir: Path | str | None
    tensorboard: bool
    trace: bool

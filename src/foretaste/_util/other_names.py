"""Setting names of other libraries and of earlier states of foretaste, for people who know them."""

from __future__ import annotations

from collections.abc import Collection

OTHER_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "foretaste": {
        "candidates_file": ("candidates",),
        "dataset_path": ("dataset",),
        "exclude_file": ("exclude",),
        "metric": ("metrics",),
        "output": ("run",),
        "people": ("num_people",),
        "run_path": ("run",),
        "runs_root": ("run",),
        "sampling": ("negatives",),
        "shared_negatives": ("negatives",),
    },
    "implicit": {
        "iterations": ("epochs",),
        "factors": ("factors", "latent"),
        "regularization": ("regularization", "l2"),
        "K": ("neighbors",),
        "N": ("k",),
        "userid": ("user_ids",),
        "itemid": ("item_ids",),
        "user_items": ("histories",),
        "items": ("candidates",),
        "filter_items": ("exclude",),
        "filter_already_liked_items": ("include_seen",),
        "num_threads": ("threads",),
        "random_state": ("seed",),
        "use_gpu": ("device",),
    },
    "RecTools": {
        "n_factors": ("factors", "latent"),
        "n_blocks": ("blocks",),
        "n_heads": ("heads",),
        "session_max_len": ("max_length",),
        "dropout_rate": ("dropout",),
        "n_negatives": ("negatives", "sampled_softmax"),
        "lr": ("learning_rate",),
        "users": ("user_ids",),
        "items_to_recommend": ("candidates",),
        "filter_viewed": ("include_seen",),
    },
    "RecBole": {
        "embedding_size": ("factors", "latent"),
        "hidden_size": ("factors",),
        "latent_dimension": ("latent",),
        "mlp_hidden_size": ("layers", "hidden"),
        "n_layers": ("blocks",),
        "dropout_prob": ("dropout",),
        "hidden_dropout_prob": ("dropout",),
        "MAX_ITEM_LIST_LENGTH": ("max_length",),
        "train_batch_size": ("batch_size",),
        "eval_batch_size": ("evaluation_batch",),
        "eval_step": ("eval_every",),
        "stopping_step": ("patience",),
        "valid_metric": ("select_by",),
        "reg_weight": ("regularization", "l2"),
        "total_anneal_steps": ("anneal_steps",),
        "topk": ("k",),
    },
    "lenskit": {
        "max_nbrs": ("neighbors",),
        "embedding_size": ("factors", "latent"),
        "negative_count": ("negatives",),
        "n": ("k",),
        "rng": ("seed",),
    },
}
"""Our names that mean the same, by library and its name, the most likely first."""


def translate_name(name: str, known: Collection[str]) -> str | None:
    """Return the name in ``known`` for another library's ``name``; None if there is none."""
    ours = [meant for names in OTHER_NAMES.values() for meant in names.get(name, ())]
    return next((meant for meant in ours if meant in known), None)

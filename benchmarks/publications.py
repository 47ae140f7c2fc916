"""Published results by name: data, split, settings and selection as published, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Step:
    """A training of a reproduction, and what was published of it."""

    name: str
    model: str
    settings: Mapping[str, Any]
    """Of the model, its negatives and its training, by name."""
    published: Mapping[str, float] = field(default_factory=dict)
    """By metric, in the order of the table; empty of a step that others only begin with."""
    published_train_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds to train by precision."""
    halves: tuple[str, ...] = ()
    """Steps whose runs a NeuMF begins with: of GMF and of MLP."""


@dataclass(frozen=True, kw_only=True)
class Publication:
    """One publication: its data, its trainings, and what is not as published here."""

    source: str
    data: str
    """A named set."""
    preparation: Mapping[str, Any]
    steps: tuple[Step, ...]
    differs: tuple[str, ...]


_NCF_TRAINING = {
    "epochs": 20,
    "patience": 0,
    "batch_size": 256,
    "learning_rate": 0.001,
    "beta1": 0.9,
    "beta2": 0.999,
    "ema": 0.0,
    "eval_every": 1,
    "candidates": "sampled-99",
    "select_by": "hr@10",
    "negatives": 4,
    "batch_layout": "shuffled",
}
_BY_SGD = {"beta1": 0.0, "eps": 1e4, "learning_rate": 10.0}
"""SGD at a rate of 0.001: Adam without momentum, whose eps the root of no squared gradient nears,
at a rate as many times as large."""
_NCF_TOWER = {"layers": (256, 256, 128, 64), "dropout": 0.0}
_LIANG_TRAINING = {
    "epochs": 200,
    "patience": 0,
    "batch_size": 500,
    "learning_rate": 0.001,
    "learning_rate_schedule": "constant",
    "beta1": 0.9,
    "beta2": 0.999,
    "ema": 0.0,
    "eval_every": 1,
    "select_by": "ndcg@100",
    "hidden": (600,),
    "latent": 200,
    "dropout": 0.5,
}
_HELD_OUT_USERS = {"protocol": "held-out-users", "filters": "reference"}
_BEST_ON_TEST = {"protocol": "leave-one-out", "validation": "none", "filters": "reference"}
_OUR_NEGATIVES = (
    "candidates are 99 items of our drawing, not those of the NCF paper's files; bring these along "
    "with --dataset, prepared from its .rating and .negative files"
)

PUBLICATIONS = {
    "ncf-paper": Publication(
        source="He et al. 2017, Neural Collaborative Filtering, arXiv 1708.05031, table 2, 64 "
        "factors; batch, rate and epochs of their code",
        data="ml-1m",
        preparation=_BEST_ON_TEST,
        steps=(
            Step(name="gmf", model="gmf", settings={**_NCF_TRAINING, "loss": "bce", "factors": 64}),
            Step(name="mlp", model="mlp", settings={**_NCF_TRAINING, **_NCF_TOWER}),
            Step(
                name="neumf",
                model="neumf",
                settings={**_NCF_TRAINING, **_NCF_TOWER, "factors": 64},
                published={"hr@10": 0.705, "ndcg@10": 0.426},
            ),
            Step(
                name="neumf-pretrained",
                model="neumf",
                settings={**_NCF_TRAINING, **_BY_SGD, **_NCF_TOWER, "factors": 64},
                published={"hr@10": 0.730, "ndcg@10": 0.447},
                halves=("gmf", "mlp"),
            ),
        ),
        differs=(
            _OUR_NEGATIVES,
            "the pretrained NeuMF goes on with SGD, as published, by Adam with beta1 0, eps 1e4 "
            "and a rate of 10",
        ),
    ),
    "nvidia-ncf": Publication(
        source="NVIDIA, NCF for TensorFlow 1, results of container 20.07 on one A100 (its tf32) "
        "and one V100 (its fp32)",
        data="ml-20m",
        preparation=_BEST_ON_TEST,
        steps=(
            Step(
                name="neumf",
                model="neumf",
                settings={
                    "factors": 64,
                    "layers": (256, 256, 128, 64),
                    "dropout": 0.5,
                    "epochs": 30,
                    "patience": 0,
                    "batch_size": 1_048_576,
                    "learning_rate": 0.0045,
                    "beta1": 0.25,
                    "beta2": 0.5,
                    "ema": 0.0,
                    "eval_every": 1,
                    "candidates": "nvidia-100",
                    "select_by": "hr@10",
                    "negatives": 4,
                    "verified_negatives": False,
                    "batch_layout": "shuffled",
                },
                published={"hr@10": 0.9588},
                published_train_s={"tf32": 59.4, "fp16": 53.1, "fp32": 120.9},
            ),
        ),
        differs=("time to train is of all epochs; NVIDIA's machines are named above",),
    ),
    "mult-vae-paper": Publication(
        source="Liang et al. 2018, Variational Autoencoders for Collaborative Filtering, arXiv "
        "1802.05814, table 2 (ML-20M); batch, rate, epochs and annealing of their code",
        data="ml-20m",
        preparation=_HELD_OUT_USERS,
        steps=(
            Step(
                name="vae",
                model="vae",
                settings={**_LIANG_TRAINING, "anneal_cap": 0.2, "anneal_steps": 200_000},
                published={"recall@20": 0.395, "recall@50": 0.537, "ndcg@100": 0.426},
            ),
            Step(
                name="dae",
                model="dae",
                settings=_LIANG_TRAINING,
                published={"recall@20": 0.387, "recall@50": 0.524, "ndcg@100": 0.419},
            ),
        ),
        differs=("held-out users are chosen by hash, not by the authors' seed",),
    ),
    "nvidia-vae": Publication(
        source="NVIDIA, VAE-CF for TensorFlow 1, results of container 20.06 on one A100 (its tf32) "
        "and one V100 (its fp32)",
        data="ml-20m",
        preparation=_HELD_OUT_USERS,
        steps=(
            Step(
                name="vae",
                model="vae",
                settings={
                    "hidden": (600,),
                    "latent": 200,
                    "dropout": 0.5,
                    "anneal_cap": 0.1,
                    "anneal_steps": 15_000,
                    "epochs": 400,
                    "patience": 0,
                    "batch_size": 24_576,
                    "learning_rate": 0.004,
                    "beta1": 0.9,
                    "beta2": 0.9,
                    "ema": 0.0,
                    "eval_every": 10,
                    "select_by": "ndcg@100",
                },
                published={"ndcg@100": 0.4303},
                published_train_s={"tf32": 112.8, "fp16": 109.4, "fp32": 346.5},
            ),
        ),
        differs=(
            "held-out users are chosen by hash, not by NVIDIA's seed",
            "time to train is of all epochs; NVIDIA's machines are named above",
        ),
    ),
    "ials-revisited": Publication(
        source="Rendle et al. 2022, arXiv 2110.14037: settings of their code for ml-1m; numbers as "
        "irspack, which has these settings, prints them",
        data="ml-1m",
        preparation=_BEST_ON_TEST,
        steps=(
            Step(
                name="ials",
                model="ials",
                settings={
                    "factors": 192,
                    "regularization": 0.007,
                    "unobserved_weight": 0.3,
                    "epochs": 12,
                    "eval_every": 12,  # the last epoch, not the best
                    "patience": 0,
                    "candidates": "sampled-99",
                    "select_by": "hr@10",
                },
                published={"hr@10": 0.731, "ndcg@10": 0.452},
            ),
        ),
        differs=(_OUR_NEGATIVES,),
    ),
    "recvae": Publication(
        source="Shenbin et al. 2020, RecVAE, arXiv 1912.11160 (ML-20M); settings of their code",
        data="ml-20m",
        preparation=_HELD_OUT_USERS,
        steps=(
            Step(
                name="recvae",
                model="recvae",
                settings={
                    "width": 600,
                    "latent": 200,
                    "dropout": 0.5,
                    "kl_weight": 0.005,
                    "encoder_passes": 3,
                    "epochs": 50,
                    "patience": 0,
                    "batch_size": 500,
                    "learning_rate": 0.0005,
                    "beta1": 0.9,
                    "beta2": 0.999,
                    "ema": 0.0,
                    "eval_every": 1,
                    "select_by": "ndcg@100",
                },
                published={"recall@20": 0.414, "recall@50": 0.553, "ndcg@100": 0.442},
            ),
        ),
        differs=("held-out users are chosen by hash, not by the authors' seed",),
    ),
}
"""Publications by name."""

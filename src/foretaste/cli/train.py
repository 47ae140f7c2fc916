"""``foretaste train``: one sub-command per model, each with the options that act for it."""

from __future__ import annotations

from cyclopts import App

train = App(name="train")

_MODELS = {
    "neumf": ("neural", "NeuMF: a matrix factorisation and a multilayer tower, joined."),
    "gmf": ("neural", "The factorisation half of NeuMF alone."),
    "mlp": ("neural", "The tower half of NeuMF alone."),
    "vae": ("neural", "Mult-VAE: a variational autoencoder over histories."),
    "dae": ("neural", "Mult-DAE: the autoencoder without the variational part."),
    "popularity": ("baselines", "What most users have, for everyone: the floor."),
    "ease": ("baselines", "EASE: linear item-to-item weights in closed form."),
}

for position, (model, (module, summary)) in enumerate(_MODELS.items()):
    where = f"foretaste.cli.train_{module}:{model}"
    train.command(where, name=model, help=summary, sort_key=position)
train.command(
    "foretaste.cli.train_neural:like",
    name="--like",
    help="RUN DATASET: repeat a run's settings with its best number of epochs.",
    sort_key=len(_MODELS),
)

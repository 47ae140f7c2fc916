"""``foretaste train``: one sub-command per model, each with the options that act for it."""

from __future__ import annotations

from cyclopts import App

train = App(name="train")

_MODELS = {
    "neumf": (
        "neural",
        """NeuMF: a matrix factorisation and a multilayer tower, joined.

        He et al. 2017, arXiv 1708.05031. The widths are NVIDIA's, made for a GPU; on a few cores
        `--factors 32 --layers 128 64 32` learns several times as fast.""",
    ),
    "gmf": ("neural", "The factorisation half of NeuMF alone."),
    "mlp": ("neural", "The tower half of NeuMF alone."),
    "vae": (
        "neural",
        """Mult-VAE: a variational autoencoder over histories.

        Liang et al. 2018, arXiv 1802.05814. It recommends to new users at once, from a history of
        any length.""",
    ),
    "dae": ("neural", "Mult-DAE: the autoencoder without the variational part."),
    "popularity": ("baselines", "What most users have, for everyone: the floor."),
    "ease": (
        "baselines",
        """EASE: linear item-to-item weights in closed form.

        Steck 2019, arXiv 1905.03375. A strong baseline where the items are few enough: it keeps a
        weight for every pair of them.""",
    ),
}

for position, (model, (module, text)) in enumerate(_MODELS.items()):
    where = f"foretaste.cli.train_{module}:{model}"
    train.command(where, name=model, help=text, sort_key=position)
train.command(
    "foretaste.cli.train_neural:like",
    name="--like",
    help="""RUN DATASET: repeat the settings of a run.

    From experiment to shop: the model is trained for as many epochs as the run's best one took. Raw
    files are prepared with protocol none, so that everything in them is learned from, unless
    --protocol says otherwise. With `--from RUN` it goes on from the run's weights.""",
    sort_key=len(_MODELS),
)
train.command(
    "foretaste.cli.train_neural:resume",
    name="--resume",
    help="""RUN: go on with a training that was interrupted or killed.

    Its state is saved every minute and after Ctrl-C; weights and metrics become those of a training
    that never stopped. Settings are those it began with.""",
    sort_key=len(_MODELS) + 1,
)

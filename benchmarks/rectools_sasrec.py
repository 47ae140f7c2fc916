"""RecTools' SASRec on a prepared dataset of leave-one-out, beside a run of ours.

    RECTOOLS_PYTHON benchmarks/rectools_sasrec.py train DATASET --output sasrec.json
    python -m benchmarks.rectools_sasrec compare sasrec.json RUN

The first line needs an environment of its own (``pip install "rectools[torch]" "numpy<2"
"pyarrow<20"``) and imports nothing of foretaste. It trains until the NDCG@10 on the validation part
has not risen for ``--patience`` evaluations. The weights of the best epoch then answer for the test
part, with the validation item in the history. The file has the place of each test item in its
user's list of ten, from 1, or 0 if it is not there, and the seconds of the processor. The second
line measures the run on the same users.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

K = 10


@dataclass(frozen=True)
class Parts:
    """The parts of a dataset as frames of RecTools' columns."""

    train: Any
    validation: Any
    test: Any

    @classmethod
    def read(cls, dataset: Path) -> Parts:
        pandas = import_module("pandas")
        frames = []
        for name in ("train", "validation", "test"):
            frame = pandas.read_parquet(dataset / f"{name}.parquet")
            rank = frame["position"]
            frames.append(
                pandas.DataFrame(
                    {
                        "user_id": frame["user_index"],
                        "item_id": frame["item_index"],
                        "weight": 1.0,
                        # SASRec uses the order of times alone.
                        "datetime": pandas.Timestamp("2000-01-01")
                        + pandas.to_timedelta(rank, unit="s"),
                    }
                )
            )
        return cls(*frames)


def places(model: Any, history: Any, target: Any) -> Any:
    """The place of each user's target in the user's list, 0 if it is not there; by user."""
    dataset = import_module("rectools.dataset").Dataset.construct(history)
    users = target["user_id"].to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lists = model.recommend(users, dataset, k=K, filter_viewed=True)
    found = target.merge(lists, on=["user_id", "item_id"], how="left").sort_values("user_id")
    return found["rank"].fillna(0).astype(int).to_numpy()


def ndcg(place_U: Any) -> float:
    numpy = import_module("numpy")
    gain_U = numpy.where(place_U > 0, 1 / numpy.log2(1 + numpy.maximum(place_U, 1)), 0.0)
    return float(gain_U.mean())


def train(given: argparse.Namespace) -> None:
    """Fit epoch by epoch, and write the numbers of the best one."""
    lightning = import_module("pytorch_lightning")
    warnings.simplefilter("ignore")
    lightning.seed_everything(given.seed, verbose=False)
    parts = Parts.read(given.dataset)
    fitted = import_module("rectools.dataset").Dataset.construct(parts.train)
    model = import_module("rectools.models").SASRecModel(
        n_blocks=2,
        n_heads=given.heads,
        n_factors=given.factors,
        session_max_len=given.length,
        dropout_rate=given.dropout,
        loss=given.loss,
        n_negatives=given.negatives,
        batch_size=given.batch_size,
        lr=given.learning_rate,
        recommend_torch_device="cpu",
    )
    best: dict[str, Any] = {"ndcg@10": -1.0, "epoch": 0}
    weights: Any = None
    fit_s = 0.0
    began = time.process_time()
    for epoch in range(1, given.epochs + 1):
        since = time.process_time()
        model.fit_partial(fitted, min_epochs=1, max_epochs=1)
        fit_s += time.process_time() - since
        if epoch % given.eval_every:
            continue
        value = ndcg(places(model, parts.train, parts.validation))
        print(f"epoch {epoch}: validation NDCG@10 {value:.4f}, {fit_s:.0f} s", flush=True)
        if value > best["ndcg@10"]:
            weights = deepcopy(model.torch_model.state_dict())
            best = {"ndcg@10": value, "epoch": epoch, "fit_s": fit_s}
        elif epoch - best["epoch"] >= given.patience * given.eval_every:
            break
    seconds = {"fit_s": fit_s, "fit_and_validation_s": time.process_time() - began}
    model.torch_model.load_state_dict(weights)
    known = import_module("pandas").concat([parts.train, parts.validation], ignore_index=True)
    place_U = places(model, known, parts.test)
    row = {
        "settings": {name: str(value) for name, value in vars(given).items() if name != "work"},
        "version": import_module("rectools").__version__,
        "best": best,
        "epochs": epoch,
        **seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "user_index": sorted(parts.test["user_id"].tolist()),
        "place": place_U.tolist(),
    }
    given.output.write_text(json.dumps(row), encoding="utf-8")


def compare(given: argparse.Namespace) -> None:
    """Print both sides' metrics with intervals, and the difference on the same users."""
    numpy = import_module("numpy")
    metrics = import_module("foretaste.evaluation.metrics")
    result = import_module("foretaste.evaluation.result")
    found = json.loads(given.places.read_text(encoding="utf-8"))
    place_U = numpy.array(found["place"])
    listed_U = numpy.flatnonzero(place_U)
    ranks = metrics.TargetRanks(
        user_T=listed_U,
        above_T=place_U[listed_U] - 1,
        tied_T=numpy.ones(len(listed_U), dtype=numpy.int64),
        item_T=numpy.zeros(len(listed_U), dtype=numpy.int64),
        num_targets_U=numpy.ones(len(place_U), dtype=numpy.int64),
    )
    theirs = metrics.user_metrics(ranks, (K,))
    ours = import_module("foretaste.measure.evaluate_runs").evaluate_run(given.run, k=(K,))
    assert ours.user_index.tolist() == found["user_index"], "the run is of another dataset"
    seconds = {name: round(found[name]) for name in ("fit_s", "fit_and_validation_s", "peak_mib")}
    print(f"SASRec: {found['epochs']} epochs, best {found['best']}, {seconds}")
    for name in ("hr@10", "ndcg@10"):
        their = result.mean_metrics({name: theirs[name]}, ranks.num_targets_U)[name]
        print(f"SASRec {their}")
        print(f"ours   {ours.metrics[name]}")
        print(result.paired_difference(name, theirs[name], ours.per_user[name]))


def main() -> None:
    """Train and write the places, or compare them."""
    main_parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = main_parser.add_subparsers(required=True)
    comparing = commands.add_parser("compare")
    comparing.add_argument("places", type=Path)
    comparing.add_argument("run", type=Path)
    comparing.set_defaults(work=compare)
    parser = commands.add_parser("train")
    parser.set_defaults(work=train)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=100, help="items of a history")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--loss", default="softmax")
    parser.add_argument("--negatives", type=int, default=256, help="of the other losses")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--epochs", type=int, default=500, help="at most")
    parser.add_argument("--eval-every", type=int, default=2)
    parser.add_argument("--patience", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = main_parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()

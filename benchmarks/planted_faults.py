"""Faults planted one at a time, and whether the tests catch them: what a cut of the tests loses.

    python -m benchmarks.planted_faults [--areas metrics ids] [--output rows.jsonl]

Each fault replaces one piece of source in a copy of the package, and the tests of its area run
against that copy. A fault that no test catches is listed at the end. Take the list before a change
that removes tests and after it; the second must have nothing that the first had not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "foretaste"

AREAS = {
    "metrics": "tests/evaluation/test_metrics.py tests/evaluation/test_result.py "
    "tests/evaluation/test_evaluator.py",
    "ranking": "tests/evaluation tests/recommend/test_known_users.py tests/data/test_dataset.py "
    "tests/data/test_protocols.py tests/training/test_train.py",
    "candidates": "tests/evaluation/test_candidates.py tests/evaluation/test_evaluator.py",
    "negatives": "tests/ops/test_negatives.py tests/models/neumf "
    "tests/training/test_prior_weight.py",
    "random": "tests/ops/test_random.py tests/ops/test_dropout.py "
    "tests/distributed/test_ranks_agreement.py",
    "split": "tests/data/test_protocols.py tests/data/test_filters.py "
    "tests/data/test_split_properties.py tests/data/test_given_split.py tests/data/test_prepare.py",
    "histories": "tests/data/test_histories.py tests/data/test_dataset.py",
    "ids": "tests/data/test_ids.py tests/recommend/test_inputs.py",
    "models": "tests/models",
    "blend": "tests/training/test_blending.py",
    "loss": "tests/ops tests/models",
    "training": "tests/training/test_loop.py tests/training/test_optimizer.py "
    "tests/training/test_early_stopping.py tests/training/test_step.py "
    "tests/training/test_stored_numbers.py",
    "resume": "tests/training/test_resume.py tests/training/test_rerun.py",
    "ranks": "tests/distributed/test_ranks_agreement.py tests/distributed/test_ranks_files.py "
    "tests/evaluation/test_ranks.py tests/recommend/test_ranks.py",
    "lists": "tests/recommend",
    "service": "tests/serve/test_api.py tests/serve/test_lists.py tests/serve/test_batching.py "
    "tests/serve/test_events.py tests/serve/test_events_served.py",
    "export": "tests/export",
}
"""The tests that ought to catch a fault of each area."""


@dataclass(frozen=True)
class Fault:
    """A piece of source and what takes its place; it stands in the file exactly once."""

    area: str
    file: str
    was: str
    becomes: str


FAULTS = [
    # metrics
    Fault("metrics", "evaluation/metrics.py", "np.log2(np.arange(2,", "np.log2(np.arange(3,"),
    Fault(
        "metrics",
        "evaluation/metrics.py",
        "ideal_U = np.minimum(ranks.num_targets_U, length)",
        "ideal_U = np.full_like(ranks.num_targets_U, length)",
    ),
    Fault(
        "metrics",
        "evaluation/metrics.py",
        "np.minimum(hits_U / ranks.num_targets_U, 1.0)",
        "np.minimum(hits_U / ideal_U, 1.0)",
    ),
    Fault(
        "metrics",
        "evaluation/metrics.py",
        "np.minimum(hits_U / ideal_U, 1.0)",
        "np.minimum(hits_U / ranks.num_targets_U, 1.0)",
    ),
    Fault(
        "metrics",
        "evaluation/metrics.py",
        "gain_to_rank[first_T]) / ranks.tied_T",
        "gain_to_rank[first_T])",
    ),
    Fault(
        "metrics",
        "evaluation/metrics.py",
        "first_here_UP / rank_P",
        "first_here_UP / (rank_P + 1)",
    ),
    Fault(
        "metrics",
        "evaluation/metrics.py",
        "targets_U = np.bincount(user_F, minlength=num_users)",
        "targets_U = np.minimum(np.bincount(user_F, minlength=num_users), 1)",
    ),
    Fault(
        "metrics", "evaluation/metrics.py", "at_K = np.asarray(k) - 1", "at_K = np.asarray(k) - 2"
    ),
    Fault("metrics", "evaluation/result.py", "one_target = bool((", "one_target = not bool(("),
    Fault(
        "metrics",
        "evaluation/evaluator.py",
        "(ranker.best_rank_I.cpu().numpy() < length)",
        "(ranker.best_rank_I.cpu().numpy() <= length)",
    ),
    Fault(
        "metrics",
        "evaluation/evaluator.py",
        "counted = heldout.rows(np.flatnonzero(heldout.target.lengths()))",
        "counted = heldout.rows(np.flatnonzero(heldout.target.lengths() >= 0))",
    ),
    Fault(
        "metrics",
        "evaluation/result.py",
        "difference = second - first",
        "difference = first - second",
    ),
    # ranking and ties
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "is_left_B = (num_above_B < k)",
        "is_left_B = (num_above_B < k - 1)",
    ),
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "torch.where(is_listed_r, tied_r.clamp_(min=1), 1)",
        "1",
    ),
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "equal_RC.cumsum(1, dtype=torch.int32) <= room_R1",
        "equal_RC.cumsum(1, dtype=torch.int32) < room_R1",
    ),
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "if bool((score_BK[:, 1:] == score_BK[:, :-1]).any()):",
        "if False:",
    ),
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "_chosen(maximum_BG[row_R] >= lowest_R[:, None])",
        "_chosen(maximum_BG[row_R] > lowest_R[:, None])",
    ),
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "if user_index[0] >= num_train_users:",
        "if user_index[0] > num_train_users:",
    ),
    Fault(
        "ranking",
        "evaluation/ranking.py",
        "_largest(score_BC, min(k + 1,",
        "_largest(score_BC, min(k,",
    ),
    Fault(
        "ranking",
        "data/dataset.py",
        "known = history.union(earlier.within(num_items))",
        "known = history",
    ),
    Fault(
        "ranking",
        "data/dataset.py",
        'earlier = self._held_pairs(self._target_files("validation")).rows(user_index)',
        'earlier = self._held_pairs(self._target_files("test")).rows(user_index)',
    ),
    # sampled candidates
    Fault(
        "candidates",
        "evaluation/evaluator.py",
        "excluded = to_device(batch.known.union(target), device)",
        "excluded = to_device(batch.known, device)",
    ),
    Fault(
        "candidates",
        "evaluation/candidates.py",
        "counts_BN = ~repeats(rank_BN) & (num_items_B > 0)[:, None]",
        "counts_BN = (num_items_B > 0)[:, None].expand_as(rank_BN)",
    ),
    Fault(
        "candidates",
        "evaluation/candidates.py",
        "is_short_B = num_items_B < rule.num_negatives",
        "is_short_B = num_items_B <= rule.num_negatives",
    ),
    Fault(
        "candidates",
        "evaluation/candidates.py",
        "return torch.where(taken_BN, s_BN, drawn_BN), holds_BN",
        "return drawn_BN, holds_BN",
    ),
    Fault(
        "candidates",
        "evaluation/candidates.py",
        'if split == "validation" else Purpose.CANDIDATES',
        'if split == "validation" else Purpose.VALIDATION_CANDIDATES',
    ),
    Fault(
        "candidates",
        "evaluation/candidates.py",
        "bounded(word_BN, s_BN + 1)",
        "bounded(word_BN, s_BN.clamp(min=1))",
    ),
    # training negatives
    Fault("negatives", "ops/negatives.py", "wanted, right=True)", "wanted)"),
    Fault(
        "negatives",
        "ops/negatives.py",
        "return self.num_items - self.offsets.diff()",
        "return self.num_items - self.offsets.diff() + 1",
    ),
    Fault(
        "negatives",
        "ops/negatives.py",
        "return self.num_items - self.offsets.diff()",
        "return (self.num_items - self.offsets.diff() - 1).clamp(min=1)",
    ),
    Fault(
        "negatives",
        "ops/negatives.py",
        "word_nK = (number_n * num_draws * GOLDEN + key)",
        "word_nK = (number_n * GOLDEN + key)",
    ),
    Fault("negatives", "ops/negatives.py", "shift_B = (torch.arange(num_rows)", "shift_B = (0"),
    Fault(
        "negatives",
        "ops/negatives.py",
        "bounded(word_BK.view(-1)[place_S] << 32,",
        "bounded(word_BK.view(-1)[place_S],",
    ),
    Fault(
        "negatives",
        "models/neumf/fold_in.py",
        "weight_BK[:, 1:] *= (num_negatives_B > 0)[:, None]",
        "weight_BK[:, 1:] *= 1.0",
    ),
    Fault(
        "negatives",
        "models/neumf/fold_in.py",
        "key_B.index_add_(0, row_index_N, item_word_N)",
        "key_B.add_(item_word_N.sum())",
    ),
    Fault(
        "negatives",
        "models/neumf/fold_in.py",
        "strength_B1 = 0.5 * prior.weight / num_losses_B1",
        "strength_B1 = 0.5 / num_losses_B1",
    ),
    # counted randomness
    Fault(
        "random",
        "ops/random.py",
        "_xor_shifted_(word, 27, spare)",
        "_xor_shifted_(word, 28, spare)",
    ),
    Fault(
        "random",
        "ops/random.py",
        "return (logical_shift_right(word, 32) * bound) >> 32",
        "return (logical_shift_right(word, 32) * bound) >> 33",
    ),
    Fault("random", "ops/random.py", ".log_().mul_(-2.0)", ".log_().mul_(-1.0)"),
    Fault(
        "random",
        "ops/random.py",
        "num_rounds = 8 if size > 1 << 10 else 32",
        "num_rounds = 2",
    ),
    Fault(
        "random",
        "ops/random.py",
        "rounds = [(side, -table % self.sides[side]) for side, table in reversed(self.rounds)]",
        "rounds = [(side, -table % self.sides[side]) for side, table in self.rounds]",
    ),
    Fault(
        "random",
        "ops/dropout.py",
        "return 1.0 - drop_threshold(rate, num_bits) / (1 << num_bits)",
        "return 1.0 - rate",
    ),
    Fault("loss", "ops/dropout.py", "(row_B << 32) - first_word_B", "(row_B << 32)"),
    Fault(
        "random",
        "ops/dropout.py",
        "keep.add_(self.threshold - (1 << ACTIVATION_BITS))",
        "keep.add_(self.threshold - (1 << ACTIVATION_BITS) + 1)",
    ),
    # splits
    Fault("split", "data/preparation/steps.py", "HAVING count(*) >= 3)", "HAVING count(*) >= 2)"),
    Fault(
        "split",
        "data/preparation/steps.py",
        "PARTITION BY user_code ORDER BY time DESC, md5({pair_key})) AS nth",
        "PARTITION BY user_code ORDER BY time DESC, item_code) AS nth",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "nth * 1000 <= num_pairs * 200",
        "nth * 1000 <= num_pairs * 300",
    ),
    Fault("split", "data/preparation/steps.py", "WHEN nth = 1 OR nth", "WHEN nth"),
    Fault(
        "split",
        "data/preparation/steps.py",
        "ORDER BY item_code, time) AS",
        "ORDER BY item_code, time DESC) AS",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "HAVING count(DISTINCT user_id) >=",
        "HAVING count(user_id) >=",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "GROUP BY user_id HAVING count(*) >= {min_user_interactions}",
        "GROUP BY user_id HAVING count(DISTINCT item_id) >= {min_user_interactions}",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "row_number() OVER (ORDER BY {kind}_id) - 1",
        "row_number() OVER () - 1",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "ORDER BY CASE WHEN part = 'train' THEN 0 ELSE 1 END, user_code",
        "ORDER BY user_code",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "ORDER BY CASE WHEN in_catalogue.item_code IS NULL THEN 1 ELSE 0 END,",
        "ORDER BY",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "WHERE nth <= {num_held}",
        "WHERE nth <= {num_held} + 1",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        "SELECT user_code FROM pairs GROUP BY user_code HAVING count(*) >= 2",
        "SELECT user_code FROM pairs GROUP BY user_code HAVING count(*) >= 1",
    ),
    Fault(
        "split",
        "data/preparation/steps.py",
        'RATED = "rating >= {min_rating}"',
        'RATED = "rating > {min_rating}"',
    ),
    # histories
    Fault("histories", "data/histories.py", "keys[np.diff(keys, prepend=-1) > 0]", "keys"),
    Fault(
        "histories",
        "data/histories.py",
        "kept = self.where(self.item_index < num_items)",
        "kept = self.where(self.item_index <= num_items)",
    ),
    Fault("histories", "data/histories.py", "offsets[:first] = 0", "pass"),
    Fault(
        "histories",
        "data/histories.py",
        "return np.where(keys[position] == wanted, position, -1)",
        "return position",
    ),
    Fault(
        "histories",
        "data/histories.py",
        "same_user & (items[1:] > items[:-1])",
        "same_user & (items[1:] >= items[:-1])",
    ),
    # ids
    Fault("ids", "data/ids.py", "valid & (ordered[position] == wanted)", "valid"),
    Fault(
        "ids",
        "data/ids.py",
        "if not _EXACT_INTEGER.fullmatch(value):",
        "if not value.isdecimal():",
    ),
    Fault("ids", "data/ids.py", "order[position], -1)", "position, -1)"),
    Fault(
        "lists",
        "recommend/item_filter.py",
        "is_allowed[:] = False",
        "pass",
    ),
    # models
    Fault("models", "models/baselines/ease.py", "self.weight_II.fill_diagonal_(0.0)", "pass"),
    Fault(
        "models",
        "models/baselines/ease.py",
        "self.config.l2 + dropout / (1 - dropout)",
        "self.config.l2 + dropout",
    ),
    Fault(
        "models",
        "models/baselines/neighbors.py",
        "length_I[item_P] * length_I[target_P] + self.config.shrinkage",
        "length_I[item_P] * length_I[target_P]",
    ),
    Fault(
        "models",
        "models/baselines/neighbors.py",
        "of_target_I[target_P]",
        "of_target_I[item_P]",
    ),
    Fault(
        "models",
        "models/baselines/ials.py",
        "min(max(_AUTO_WEIGHT * density, 1e-12), 1.0)",
        "1.0",
    ),
    Fault(
        "models",
        "models/baselines/ials.py",
        "return ridge * (histories.total_weights() + num_pairs)",
        "return ridge * histories.total_weights().clamp(min=1.0)",
    ),
    Fault("models", "models/vae/model.py", "min(cap, update / steps)", "cap"),
    Fault(
        "models",
        "models/vae/model.py",
        "beta = (batch.update / steps).clamp(max=cap)",
        "beta = (batch.update / steps)",
    ),
    Fault(
        "models",
        "models/vae/recvae.py",
        "dropout = self.config.dropout if self.training and trains_encoder else 0.0",
        "dropout = self.config.dropout if self.training else 0.0",
    ),
    Fault("models", "models/vae/recvae.py", "sum_BH = sum_BH + hidden_BH", "sum_BH = hidden_BH"),
    Fault(
        "export",
        "models/vae/autoencoder.py",
        "length_B1.clamp(min=1.0).rsqrt()",
        "length_B1.clamp(min=1.0).reciprocal()",
    ),
    Fault(
        "blend",
        "models/blend/model.py",
        "torch.where(deviation_B1 > 0.0, deviation_B1, 1.0)",
        "torch.where(deviation_B1 > 1.0, deviation_B1, 1.0)",
    ),
    # losses
    Fault(
        "loss", "ops/reparameterize.py", "(0.5 * log_variance_BL).exp_()", "log_variance_BL.exp()"
    ),
    Fault(
        "loss", "ops/reparameterize.py", "sub_(log_variance_BL).sub_(1.0)", "sub_(log_variance_BL)"
    ),
    Fault(
        "loss",
        "ops/reparameterize.py",
        "spread_BL.addcmul_(deviation_BL.square().sub_(1.0), divergence).mul_(0.5)",
        "spread_BL.addcmul_(deviation_BL.square(), divergence).mul_(0.5)",
    ),
    Fault(
        "loss",
        "ops/neumf_loss/reference.py",
        "scale = 1.0 / keep_rate(rate)",
        "scale = 1.0",
    ),
    Fault(
        "loss",
        "ops/neumf_loss/reference.py",
        "        + inputs.output_bias_1\n",
        "",
    ),
    Fault(
        "loss",
        "ops/least_squares.py",
        "shared_D = unobserved_weight * fixed.eigenvalue_D",
        "shared_D = fixed.eigenvalue_D",
    ),
    # training
    Fault("training", "training/loop.py", "if is_best:", "if True:"),
    Fault(
        "training",
        "training/early_stopping.py",
        "value <= self.best_value",
        "value < self.best_value",
    ),
    Fault(
        "training",
        "training/early_stopping.py",
        "if 0 < self.plan.patience <= self.num_without_gain:",
        "if 0 < self.plan.patience < self.num_without_gain:",
    ),
    Fault("training", "training/optimizer.py", "lerp_(weight, 1.0 - kept)", "lerp_(weight, kept)"),
    Fault(
        "training",
        "training/optimizer.py",
        "betas=(plan.beta1, plan.beta2)",
        "betas=(plan.beta2, plan.beta1)",
    ),
    Fault(
        "training",
        "training/optimizer.py",
        "self.num_finite.add_(1).mul_(~overflowed)",
        "self.num_finite.add_(1)",
    ),
    Fault(
        "training",
        "training/state.py",
        "return self.losses().sum().item() / self.num_samples",
        "return self.losses().mean().item()",
    ),
    Fault(
        "training",
        "training/step.py",
        "self.model.zero_grad(set_to_none=True)\n        with self",
        "with self",
    ),
    Fault("training", "training/optimizer.py", "eps=plan.eps,", ""),
    # resume
    Fault("resume", "training/step.py", 'state[f"optimizer.{kind}.{name}"] = value', "pass"),
    Fault(
        "resume",
        "training/state.py",
        'self.epoch, self.num_done = position["epoch"], position["num_done"]',
        'self.epoch, self.num_done = position["epoch"], 0',
    ),
    Fault(
        "resume",
        "training/state.py",
        'self.early_stopping = EarlyStopping(self.plan, **position["selection"])',
        "self.early_stopping = EarlyStopping(self.plan)",
    ),
    Fault(
        "resume",
        "models/vae/batches.py",
        "self.one_pass.epoch(overall, skipped)",
        "self.one_pass.epoch(overall, 0)",
    ),
    Fault(
        "resume",
        "training/step.py",
        'self.average.load_state_dict(_under("average", state))',
        "pass",
    ),
    # ranks
    Fault(
        "models",
        "models/vae/batches.py",
        "torch.tensor([part.start for part in rows])",
        "torch.tensor([0 for part in rows])",
    ),
    Fault("ranks", "distributed/collectives.py", "self.sum_(tensor := tensor.clone())", "pass"),
    Fault("ranks", "distributed/checkpoint.py", "saved.tensors[LOSSES].zero_()", "pass"),
    # lists
    Fault(
        "lists",
        "recommend/inputs.py",
        "np.where(found < 0, len(users), found)",
        "np.where(found < 0, 0, found)",
    ),
    Fault(
        "lists",
        "recommend/recommender.py",
        "histories.union(more) if has_items.any() else more",
        "more",
    ),
    Fault(
        "lists",
        "recommend/top_k.py",
        "self.length[rows] = (score_BK != ABSENT)",
        "self.length[rows] = (score_BK != 0)",
    ),
    Fault(
        "lists",
        "recommend/recommender.py",
        "vectors /= np.maximum(lengths,",
        "vectors *= np.maximum(lengths,",
    ),
    Fault(
        "lists",
        "recommend/item_filter.py",
        "is_allowed[index] = False",
        "pass",
    ),
    # service
    Fault("service", "serve/guard.py", 'or scope["path"] in OPEN_PATHS', "or True"),
    Fault(
        "service",
        "serve/guard.py",
        'if name == b"host" and not self',
        'if name == b"host" and self',
    ),
    Fault("service", "serve/batching.py", "if job.deadline > now and not", "if not"),
    Fault("service", "serve/events.py", "done -= mine", "pass"),
    Fault("service", "serve/events.py", '.on_conflict_do_nothing(index_elements=["event_id"])', ""),
    # export
    Fault(
        "export",
        "export/program.py",
        "masked_fill(known_BI > 0.0, ABSENT)",
        "masked_fill(known_BI > 1.0, ABSENT)",
    ),
    Fault(
        "export",
        "export/program.py",
        "score_BI = torch.where(history_length_B[:, None] > 0, score_BI, self.count_I)",
        "pass",
    ),
]


def tests_pass(area: str, fault: Fault | None) -> bool:
    """True where the tests of an area pass on a copy of the package, with the fault in it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "foretaste"
        shutil.copytree(SOURCE, copy)
        if fault is not None:
            text = (SOURCE / fault.file).read_text(encoding="utf-8")
            count = text.count(fault.was)
            assert count == 1, f"{fault.file} has {count} of {fault.was!r}; say it anew"
            planted = text.replace(fault.was, fault.becomes)
            (copy / fault.file).write_text(planted, encoding="utf-8")
        tests = [path for path in AREAS[area].split() if (ROOT / path).exists()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(
            [*command, "-m", "not slow"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": scratch, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
    # 1 is failed tests, 4 a conftest that could not be imported
    assert done.returncode in (0, 1, 2, 4), done.stdout[-2000:] + done.stderr[-2000:]
    if fault is None and done.returncode:
        print(done.stdout[-3000:])
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--areas", nargs="*", default=[*AREAS])
    parser.add_argument("--output", type=Path, help="rows already there are not run again")
    arguments = parser.parse_args()
    # What a shell puts into the background ignores Ctrl-C, and so would what the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output: Path | None = arguments.output
    done: dict[tuple[str, str, str], bool] = {}
    if output is not None and output.exists():
        rows = map(json.loads, output.read_text(encoding="utf-8").splitlines())
        done = {(row["file"], row["was"], row["becomes"]): row["is_caught"] for row in rows}
    missed = []
    sound: set[str] = set()
    wanted = [fault for fault in FAULTS if fault.area in arguments.areas]
    for number, fault in enumerate(wanted, start=1):
        key = fault.file, fault.was, fault.becomes
        if key not in done:
            if fault.area not in sound:
                assert tests_pass(fault.area, None), f"the tests of {fault.area} fail as they are"
                sound.add(fault.area)
            done[key] = not tests_pass(fault.area, fault)
            if output is not None:
                with output.open("a", encoding="utf-8") as rows_file:
                    rows_file.write(json.dumps(vars(fault) | {"is_caught": done[key]}) + "\n")
        if not done[key]:
            missed.append(fault)
        word = "caught" if done[key] else "MISSED"
        print(
            f"{number} of {len(wanted)} {fault.area}: {word}: {fault.file}: {fault.was}", flush=True
        )
    print(f"{len(wanted) - len(missed)} of {len(wanted)} faults caught")
    for fault in missed:
        print(f"missed: {fault.file}: {fault.was!r} -> {fault.becomes!r}")


if __name__ == "__main__":
    main()

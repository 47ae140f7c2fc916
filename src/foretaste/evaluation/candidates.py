"""Negatives that a held-out item is ranked against, drawn by counted randomness.

Draws are keyed by the dataset's seed and the user's number, so they do not move with the training
seed, the batches or the device.

Shape suffixes: B users, N negatives per user.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.evaluation.config import CandidateRule
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.negatives import Complement
from foretaste.ops.random import Purpose, bounded_integers, hash_words, stream_key

_MOST_DRAWS = 1 << 24
"""Counters of each user. N is below ten million, so no user's draws reach the next one's."""


def candidates_key(seed: int, split: str) -> int:
    """Return the stream of a split's draws.

    Validation and test have different negatives, so the negatives that choose an epoch do not test
    it.
    """
    purpose = Purpose.VALIDATION_CANDIDATES if split == "validation" else Purpose.CANDIDATES
    return stream_key(seed, purpose)


def draw_negatives(
    rule: CandidateRule, excluded: HistoryTensors, user_index_B: Tensor, key: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return items outside each user's ``excluded`` ones.

    Returns the items (int64 [B, N]), which of them count (bool [B, N]), and the users who had
    fewer than N to draw from (bool [B]).

    The draws are words of the stream ``key``, counted by user.

    ``sampled``: distinct, every set of N equally likely; all of them if fewer exist. ``nvidia``:
    independent draws; repeats do not count.
    """
    # Held-out items are among the excluded: 156 of 6,040 users of the NCF paper's ml-1m file have
    # their own test item among its negatives.
    complement = Complement.of(excluded)
    num_items_B = complement.sizes()
    draw_N = torch.arange(rule.num_draws(excluded.num_items), device=user_index_B.device)
    counter_BN = user_index_B.long()[:, None] * _MOST_DRAWS + draw_N
    word_BN = hash_words(key, counter_BN)
    if rule.kind == "sampled":
        rank_BN, counts_BN = distinct_ranks(word_BN, num_items_B)
    else:
        rank_BN = bounded_integers(word_BN, num_items_B[:, None])
        # A repeat means one negative less. A comment in NVIDIA's code says that this raises HR@10
        # by about .01; its 0.9588 on ML-20M includes that.
        counts_BN = ~repeats(rank_BN) & (num_items_B > 0)[:, None]
    row_B1 = torch.arange(len(excluded), device=word_BN.device)[:, None]
    # Ranks that do not count may lie beyond the last item, so they are not looked up.
    item_BN = complement.select(row_B1, rank_BN.masked_fill(~counts_BN, 0))
    is_short_B = num_items_B < rule.num_negatives
    return item_BN.masked_fill(~counts_BN, 0), counts_BN, is_short_B


def distinct_ranks(word_BN: Tensor, bound_B: Tensor) -> tuple[Tensor, Tensor]:
    """min(N, bound) distinct integers in [0, bound) per row, every set of them equally likely.

    Returns int64 [B, N] made from random words, and the columns that hold one, bool [B, N].

    Floyd's algorithm (Bentley & Floyd 1987): draw d falls in [0, s] with s = bound - count + d and
    yields s itself if the number drawn is taken. It is taken if drawn before, or if it is the s of
    an earlier draw that was itself taken; the latter runs along a chain, followed until it rests.
    """
    num_draws = word_BN.shape[1]
    draw_N = torch.arange(num_draws, device=word_BN.device)
    count_B1 = bound_B.clamp(max=num_draws)[:, None]
    holds_BN = draw_N < count_B1
    first_s_B1 = bound_B[:, None] - count_B1
    s_BN = first_s_B1 + draw_N
    drawn_BN = bounded_integers(word_BN, s_BN + 1)
    taken_BN = repeats(drawn_BN)
    earlier_BN = drawn_BN - first_s_B1
    is_earlier_BN = (earlier_BN >= 0) & (earlier_BN < draw_N)
    earlier_BN = torch.where(is_earlier_BN, earlier_BN, 0)
    # Draws of a row would be made one after another. Here all rows and columns are made at once,
    # and only the chains take rounds: one leads to earlier columns alone, so it ends. `torch.equal`
    # waits for the device in each round.
    while True:
        now_taken_BN = taken_BN | (is_earlier_BN & taken_BN.gather(1, earlier_BN))
        if torch.equal(now_taken_BN, taken_BN):
            break
        taken_BN = now_taken_BN
    return torch.where(taken_BN, s_BN, drawn_BN), holds_BN


def repeats(value_BN: Tensor) -> Tensor:
    """Return True for values that occurred before in their row, bool [B, N]."""
    # Stable, so the first of equal values stays the first, and the later ones are the repeats.
    sorted_BN, order_BN = value_BN.sort(dim=1, stable=True)
    same_BN = torch.zeros_like(value_BN, dtype=torch.bool)
    same_BN[:, 1:] = sorted_BN[:, 1:] == sorted_BN[:, :-1]
    return torch.empty_like(same_BN).scatter_(1, order_BN, same_BN)


def choose_users(user_index: NDArray[np.integer], num_wanted: int, seed: int) -> NDArray[np.int64]:
    """Return positions of at most ``num_wanted`` users in ``user_index``, ascending, by hash."""
    if len(user_index) <= num_wanted:
        return np.arange(len(user_index))
    counter = torch.tensor(user_index, dtype=torch.int64)
    word = hash_words(stream_key(seed, Purpose.VALIDATION_USERS), counter)
    # The users with the smallest hashes are chosen, so a larger number includes the users of a
    # smaller one.
    return np.sort(np.argsort(word.numpy(), kind="stable")[:num_wanted])

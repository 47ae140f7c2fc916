"""How much is computed at a time: a matter of caches and memory, never of results.

`LIMITS` has one value for each kind of device. Operations, models and evaluation read the value for
the device of their tensors.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes of chunks on a kind of device; the defaults are a CPU's."""

    draws: int = 1 << 17
    """Random words for negatives: 1 MiB."""

    words: int = 1 << 17
    """Random words that fill a table."""

    positions: int = 1 << 18
    """Positions of a permutation whose values are computed, or sorted by their batch."""

    sum_bytes: int = 10 << 20
    """Sums of segments, which fit a cache."""

    few_summands: int = 1 << 10
    """Summands that a CPU adds up one after another; larger numbers are sorted."""

    inverse_rows: int = 256
    """Rows of a block of a matrix that is inverted, or of weights made of the inverse."""

    candidate_numbers: int = 1 << 24
    """Numbers of the gathered rows of candidates, or their products if no rows are gathered."""

    system_numbers: int = 1 << 21
    """Numbers of the gathered vectors and systems of least squares; they fit a CPU's cache."""

    gradient_entries: int = 1 << 15
    """Interactions of conjugate gradients; the rows are an eighth of them at most. On a CPU a sweep
    of the shape of ml-1m and width 128 took a thread 0.58, 0.42, 0.34 and 0.29 s by chunks of 2^12
    to 2^15, and 0.28 s by 2^16."""

    samples: int = 1 << 13
    """Samples that pass through NeuMF's tower. Activations of larger chunks leave a CPU's cache: on
    two cores 8,192 samples ran fastest, and 65,000 and more took twice as long as 16,000."""

    pairs: int = 1 << 12
    """Pairs that NeuMF only scores. Scores are float32, so fewer of them fit a cache."""

    block_samples: int = 1 << 16
    """Samples of NeuMF whose gradients are stored, then summed item by item."""

    block_samples_per_item: int = 4
    """A block grows to this many samples per item, because its sums pass over all items once."""

    most_block_samples: int = 1 << 18
    """A block grows no further, because its gradients are stored."""

    product_samples: int = 1 << 19
    """Samples of GMF, which are sorted by item and pass over all items once."""

    dense_items_per_candidate: int = 8
    """Items of the catalogue for each candidate of a row up to which GMF's slopes are written for
    every item. A product with that share of zeros takes a CPU about as long as sorting the
    candidates."""

    logits_bytes: int = 1 << 26
    """Logits of a chunk of users by the whole catalogue."""

    narrow_bytes: int = 3 << 23
    """Logits of a chunk with narrow weights: the allocator reuses this size without new pages."""

    items: int = 1 << 12
    """Items whose logits are computed by one product."""

    exponentials: int = 1 << 17
    """Logits whose exponentials are taken: on a CPU as many as fit a core's cache, for each thread;
    on a GPU enough to outlast the launch of an operation."""

    drawn_samples: int = 1 << 14
    """Samples of NeuMF that a CPU draws together if batches are smaller: drawing a few costs as
    much as drawing thousands. A GPU draws batch by batch: pieces of one tensor begin at addresses
    of another alignment, and Triton would compile its kernels again for them."""

    sorted_entries: int = 1 << 22
    """Interactions that are sorted for the newest of each row; sorting takes 40 bytes of each."""

    places: int = 1 << 14
    """Places of the rows that SASRec answers together."""

    catalogue_scores: int = 1 << 24
    """Scores of users for the whole catalogue, if few scores or only statistics are kept."""

    neighbor_pairs: int = 1 << 20
    """Pairs of an item of a history and a neighbour that are added up; an item may have more."""

    neighbor_numbers: int = 1 << 20
    """Numbers of the systems of neighbours that a thread solves; one system may have more."""

    score_bytes: int = 1 << 28
    """Scores of the users that are ranked together. On a CPU they fit 64 users of a million items.
    With 16 users at once, each user takes a third longer, because every batch reads all vectors of
    items."""

    cached_score_bytes: int = 1 << 23
    """Scores of a batch that stay in a CPU's cache. Ranking 3,706 items by a matrix factorisation
    then takes three quarters of the time. Below 4 MiB the calls cost more than the cache saves."""

    candidate_scores: int = 1 << 16
    """Scores of sampled or fixed candidates of the users that are ranked together: each may cost a
    row of activations in a tower."""

    rank_cells: int = 1 << 20
    """Cells of a table of users by ranks."""


LIMITS = {
    "cpu": Limits(),
    "cuda": Limits(
        draws=1 << 20,
        system_numbers=1 << 26,
        gradient_entries=1 << 19,
        samples=1 << 18,
        pairs=1 << 18,
        block_samples=1 << 20,
        product_samples=1 << 20,
        dense_items_per_candidate=0,
        logits_bytes=1 << 30,
        narrow_bytes=0,
        items=1 << 18,
        exponentials=1 << 26,
        drawn_samples=0,
        score_bytes=1 << 29,
        cached_score_bytes=1 << 29,  # no bound of its own: all of `score_bytes`
    ),
}

"""Settings of an evaluation: candidates to rank a held-out item against, and list lengths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from foretaste._util.settings import Count, Range, check_settings, checked, wrong

Lengths = Annotated[tuple[int, ...], Range(at_least=1)]

CANDIDATES_HELP = "full, fixed, sampled-N or nvidia-N with N at least 1, such as sampled-99"


@dataclass(frozen=True, kw_only=True)
class CandidateRule:
    """``candidates`` taken apart: ``sampled-99`` is kind ``sampled`` with 99 negatives."""

    kind: Literal["full", "fixed", "sampled", "nvidia"]
    num_negatives: int
    """How many are drawn for each user; 0 where none are."""

    def num_draws(self, num_items: int) -> int:
        """Number of draws from so many items: distinct ones come to an end."""
        return min(self.num_negatives, num_items) if self.kind == "sampled" else self.num_negatives

    @classmethod
    def parse(cls, candidates: str) -> CandidateRule:
        """The rule that ``candidates`` names; SettingError says which there are."""
        candidates = checked("candidates", candidates, str)
        if candidates in ("full", "fixed"):
            kept: Literal["full", "fixed"] = "full" if candidates == "full" else "fixed"
            return cls(kind=kept, num_negatives=0)
        match = re.fullmatch(r"(sampled|nvidia)-([1-9][0-9]{0,6})", candidates)
        if match is None:
            raise wrong("candidates", candidates, CANDIDATES_HELP)
        kind: Literal["sampled", "nvidia"] = "sampled" if match[1] == "sampled" else "nvidia"
        return cls(kind=kind, num_negatives=int(match[2]))


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Settings of `evaluate`."""

    candidates: str = "full"
    """What a held-out item is ranked against: `full` (the catalogue without the user's known
    items), `sampled-N` (N distinct negatives), `nvidia-N` (N drawn with replacement, repeats
    left out) or `fixed` (those that came with the dataset)."""

    k: Lengths = (10, 20, 50, 100)
    """Lengths of the lists: each metric is given at each of them."""

    evaluation_batch: Count | None = None
    """Users ranked at once; as many as fit 64 MiB of scores (512 MiB on a GPU) unless given."""

    def __post_init__(self) -> None:
        check_settings(self)
        CandidateRule.parse(self.candidates)
        checked_lengths(self.k)


def checked_lengths(k: Iterable[int]) -> tuple[int, ...]:
    """The distinct list lengths in ``k``, ascending; SettingError if there are none or below 1."""
    lengths: tuple[int, ...] = checked("k", k, Lengths)
    if not lengths:
        raise wrong("k", lengths, "one list length or more, such as 10")
    return tuple(sorted(set(lengths)))

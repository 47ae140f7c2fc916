"""What to measure: the candidates a held-out item is ranked against, and how deep."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from foretaste.errors import SettingError

CANDIDATES_HELP = "full, sampled-N or nvidia-N with N at least 1, such as sampled-99"


@dataclass(frozen=True, kw_only=True)
class CandidateRule:
    """``candidates`` taken apart: ``sampled-99`` is kind ``sampled`` with 99 negatives."""

    kind: Literal["full", "sampled", "nvidia"]
    num_negatives: int

    @classmethod
    def parse(cls, candidates: str) -> CandidateRule:
        """The rule that ``candidates`` names; SettingError says which there are."""
        if candidates == "full":
            return cls(kind="full", num_negatives=0)
        match = re.fullmatch(r"(sampled|nvidia)-([1-9][0-9]{0,6})", candidates)
        if match is None:
            raise SettingError(f"candidates is {candidates!r}; use {CANDIDATES_HELP}")
        kind: Literal["sampled", "nvidia"] = "sampled" if match[1] == "sampled" else "nvidia"
        return cls(kind=kind, num_negatives=int(match[2]))


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What `evaluate` measures."""

    candidates: str = "full"
    """What a held-out item is ranked against: `full` (the catalogue without the user's known
    items), `sampled-N` (N distinct negatives) or `nvidia-N` (N drawn with replacement, repeats
    left out)."""

    k: tuple[int, ...] = (10, 20, 50, 100)
    """Lengths of the lists that are judged: each metric is given at each of them."""

    def __post_init__(self) -> None:
        CandidateRule.parse(self.candidates)
        checked_lengths(self.k)


def checked_lengths(k: Iterable[int]) -> tuple[int, ...]:
    """The distinct list lengths in ``k``, ascending; SettingError if there are none or below 1."""
    lengths = tuple(sorted(set(k)))
    if not lengths or lengths[0] < 1:
        raise SettingError(f"k is {tuple(k)}; give one or more list lengths of at least 1")
    return lengths

"""How much data a benchmark generates: named after public sets, or spelled out."""

from __future__ import annotations

import re

from foretaste.data.synthetic_config import GenerateConfig
from foretaste.errors import SettingError

_NAMED = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-20m": (138_493, 26_744, 20_000_263),
}
"""Users, items and interactions of the MovieLens sets."""

_NAMED_FOR_AUTOENCODERS = {"ml-20m": (116_677, 20_108, 8_528_759)}
"""What Mult-VAE's paper and NVIDIA train on: ratings of 4 and more, users with 5 of them, less
20,000 held-out users; interactions are the remaining users' share of the 9,990,682."""

_SPELLED_OUT = re.compile(r"(\d+)[x×](\d+)[x×](\d+)")
_MAX_GENRES = 20


def parse_shape(text: str, model: str) -> GenerateConfig:
    """The data called ``text``: ``ml-20m``, ``ml-1m``, ``ml-100k``, USERSxITEMSxINTERACTIONS.

    ``ml-20m`` is what the reference of ``model`` trains on. SettingError for anything else.
    """
    named = _NAMED | _NAMED_FOR_AUTOENCODERS if model in ("vae", "dae") else _NAMED
    match = _SPELLED_OUT.fullmatch(text.replace(",", "").replace("_", "").lower())
    if text in named:
        counts = named[text]
    elif match:
        counts = (int(match[1]), int(match[2]), int(match[3]))
    else:
        raise SettingError(
            f"shape is {text!r}; use {', '.join(_NAMED)} or users, items and interactions such as "
            "6040x3706x1000209"
        )
    return shape_of(*counts)


def shape_of(num_users: int, num_items: int, num_interactions: int) -> GenerateConfig:
    """Generated data of that size, with as many genres as MovieLens has where items allow."""
    return GenerateConfig(
        num_users=num_users,
        num_items=num_items,
        num_interactions=num_interactions,
        num_genres=min(_MAX_GENRES, num_items),
    )

"""Names for generated items: readable, unique, and true to their genre."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GENRES = (
    "space opera", "ghost story", "heist", "cookery", "courtroom drama", "sea adventure",
    "romance", "spy thriller", "western", "musical", "mountaineering", "comedy of manners",
    "fairy tale", "detective story", "nature film", "time travel", "war drama", "road movie",
    "family saga", "horror", "sport", "silent film", "satire", "biography",
)  # fmt: skip

_ADJECTIVES = (
    "Amber", "Ancient", "Bitter", "Borrowed", "Brave", "Broken", "Burning", "Careful", "Clever",
    "Copper", "Crimson", "Crooked", "Daring", "Distant", "Drifting", "Electric", "Emerald",
    "Empty", "Endless", "Faithful", "Fallen", "Final", "First", "Forgotten", "Fragile", "Frozen",
    "Gentle", "Gilded", "Golden", "Hidden", "Hollow", "Hungry", "Invisible", "Iron", "Ivory",
    "Jolly", "Last", "Little", "Lonely", "Lost", "Lucky", "Midnight", "Missing", "Northern",
    "Paper", "Patient", "Perfect", "Quiet", "Restless", "Rising", "Sacred", "Scarlet", "Secret",
    "Seventh", "Shining", "Silent", "Silver", "Sleeping", "Stolen", "Stubborn", "Sudden",
    "Tender", "Thirteenth", "Twisted", "Velvet", "Wandering", "Whispering", "Wild", "Winter",
    "Wooden",
)  # fmt: skip

_NOUNS = (
    "Anchor", "Archive", "Bell", "Bridge", "Candle", "Caravan", "Castle", "Circus", "Clock",
    "Coast", "Compass", "Corridor", "Crown", "Desert", "Door", "Engine", "Express", "Feather",
    "Festival", "Forest", "Fountain", "Garden", "Gate", "Guest", "Harbour", "Harvest", "Horizon",
    "Hotel", "Island", "Journey", "Kingdom", "Lantern", "Letter", "Library", "Lighthouse", "Map",
    "Market", "Mask", "Meadow", "Mirror", "Mountain", "Night", "Oath", "Ocean", "Orchard",
    "Painter", "Palace", "Piano", "Promise", "Raven", "River", "Road", "Room", "Season",
    "Shadow", "Shepherd", "Signal", "Sister", "Song", "Stair", "Stranger", "Summer", "Theatre",
    "Tide", "Tower", "Train", "Valley", "Violin", "Voyage", "Window",
)  # fmt: skip

_NUM_PAIRS = len(_ADJECTIVES) * len(_NOUNS)


def genre_names(num_genres: int) -> list[str]:
    """As many different genres as asked for; beyond the known ones they are numbered."""
    rounds = -(-num_genres // len(GENRES))
    names = [genre if turn == 0 else f"{genre} {turn + 1}" for turn in range(rounds)
             for genre in GENRES]  # fmt: skip
    return names[:num_genres]


def make_titles(genre_of_item: NDArray[np.integer], rng: np.random.Generator) -> list[str]:
    """One title for each item, such as ``The Quiet Harbour``; no two of a genre are the same."""
    order = rng.permutation(_NUM_PAIRS)
    used: dict[int, int] = {}
    titles = []
    for genre in genre_of_item.tolist():
        turn, position = divmod(used.get(genre, 0), _NUM_PAIRS)
        used[genre] = used.get(genre, 0) + 1
        # Genres start at different places, so that their first titles differ.
        pair = int(order[(position + genre * 211) % _NUM_PAIRS])
        adjective, noun = divmod(pair, len(_NOUNS))
        sequel = "" if turn == 0 else f" {turn + 1}"
        titles.append(f"The {_ADJECTIVES[adjective]} {_NOUNS[noun]}{sequel}")
    return titles

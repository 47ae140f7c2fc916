"""Names that a column may have, by what it holds.

The roles are ``user_id``, ``item_id``, ``rating``, ``time``, ``weight``, ``event`` and ``title``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretaste._util.formatting import short_repr
from foretaste.errors import InputError

# Names are compared without case and punctuation, so userId, user_id and "User ID" are equal. The
# best spelling is first.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "user_id": (
        # Olist's customer_id changes with each order.
        "userid", "user", "uid", "customeruniqueid", "customerid", "customer", "customerno",
        "customernumber", "customercode", "memberid", "member", "visitorid", "visitor", "accountid",
        "shopperid", "householdkey", "householdid", "reviewerid", "reviewer", "profileid",
        "playerid", "clientid", "client", "buyerid", "buyer", "personid", "username",
    ),
    "item_id": (
        "itemid", "item", "iid", "movieid", "movie", "productid", "product", "asin", "parentasin",
        "articleid", "article", "bookid", "book", "isbn", "artistid", "artist", "trackid", "track",
        "songid", "song", "gameid", "game", "appid", "videoid", "newsid", "businessid", "sku",
        "stockcode", "itemcode", "productcode", "articlecode", "itemno", "productno", "articleno",
        "itemsku", "productsku", "lineitemsku", "animeid", "beerid", "listingid", "contentid",
        "documentid", "docid", "recipeid", "itemnumber", "productnumber", "articlenumber",
        "partnumber", "productref", "variantid", "ean", "ean13", "gtin", "upc", "barcode",
    ),
    "rating": (
        "rating", "ratings", "stars", "starrating", "score", "overall", "userrating", "bookrating",
    ),
    "time": (
        "timestamp", "time", "datetime", "date", "ts", "unixtime", "unixreviewtime", "eventtime",
        "eventtimestamp", "eventdate", "invoicedate", "orderdate", "ordertime", "orderedat",
        "purchasedate", "purchasetime", "orderpurchasetimestamp", "purchasedat", "boughtat",
        "soldat", "transactiondate", "transactiontime", "reviewdate", "reviewtime", "ratingdate",
        "ratingtime", "createdat", "createdtime", "ratedat", "playedat", "viewedat", "watchedat",
        "usertimerank", "timerank",
    ),
    "weight": (
        "weight", "count", "counts", "playcount", "plays", "listens", "listencount", "numplays",
        "playtime", "hours", "hoursplayed", "views", "viewcount", "clicks", "quantity", "qty",
        "units", "frequency", "freq", "strength", "confidence",
    ),
    "title": (
        "title", "name", "itemtitle", "movietitle", "itemname", "productname", "producttitle",
        "booktitle", "description", "itemdescription", "productdescription",
    ),
}  # fmt: skip

EVENTS = frozenset((
    "event", "eventtype", "eventname", "action", "actiontype", "interaction", "interactiontype",
    "behavior", "behaviour", "behaviortype", "behaviourtype", "activity", "activitytype",
))  # fmt: skip

# "name" is left out: in interactions it may be the user's name.
TITLES = frozenset(SPELLINGS["title"]) - {"name"}
STRENGTHS = frozenset(SPELLINGS["rating"] + SPELLINGS["weight"])
KNOWN = frozenset(spelling for spellings in SPELLINGS.values() for spelling in spellings)

PAIR = ("user_id", "item_id")
"""The roles whose columns every input must have."""

NAMED = ("weight", "event")
"""The roles whose column is read only if a setting names it."""

OPTIONS = {
    role: f"{role.removesuffix('_id')}_column" for role in (*PAIR, "rating", "time", *NAMED)
} | {"clock": "time_column"}

# RecBole writes the type of a column behind its name: user_id:token.
_TYPE_IN_NAME = re.compile(r":(token|float)(_seq)?$")


def find_spelling(
    columns: Sequence[str], role: str, where: str, advice: str | None = None
) -> str | None:
    """Return the best spelling of ``role``, or None; InputError with ``advice`` if two tie."""
    for spelling in SPELLINGS[role]:
        matches = [column for column in columns if plain(column) == spelling]
        if len(matches) > 1:
            raise InputError(
                f"{where}: columns {' and '.join(map(short_repr, matches))} could both be {role}; "
                f"{advice or f'say which with {flag(OPTIONS[role])}'}"
            )
        if matches:
            return matches[0]
    return None


def flag(*options: str) -> str:
    """Return options in the spelling of the command line, then in Python's."""
    words = " and ".join(f"--{option.replace('_', '-')}" for option in options)
    return f"{words} ({', '.join(f'{option}=...' for option in options)} in Python)"


def plain(name: str) -> str:
    """Return the name without case, spaces, punctuation and type."""
    name = _TYPE_IN_NAME.sub("", name)
    return re.sub(r"[\W_]", "", name).lower()

"""A word is found in either Unicode form: é as one character (NFC) or as two (NFD)."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import pandas as pd

import foretaste
from tests.serve.conftest import serving

CAFE, CREME = "caf\u00e9", "Cr\u00e8me br\u00fbl\u00e9e"


def test_items_are_found_in_any_form(tmp_path: Path) -> None:
    pairs = [(user, item) for user in range(9) for item in (CAFE, "tea", f"x{user % 3}")]
    plays = pd.DataFrame(pairs, columns=["user_id", "item_id"]).astype({"user_id": str})
    plays["user_id"] = normalize("NFC", "Zo\u00eb ") + plays["user_id"]
    titles = {"item_id": [CAFE, "x1"], "title": ["A cup", normalize("NFD", CREME)]}
    recommender = foretaste.fit("itemknn", plays, items=pd.DataFrame(titles))
    recommender.save(tmp_path / "run")
    with serving(tmp_path / "run") as (client, _):
        for form in ("NFC", "NFD"):
            for word, found in ((CAFE, [CAFE]), ("BR\u00dbL\u00c9E", ["x1"])):
                params = {"query": normalize(form, word)}
                items = client.get("/v1/items", params=params).json()["items"]
                assert [item["item_id"] for item in items] == found
            ids = [normalize(form, CAFE)]
            (answer,) = client.post("/v1/similar", json={"item_ids": ids}).json()["answers"]
            assert answer["known"]
            user = {"user_id": normalize(form, "Zo\u00eb 1")}
            history = client.get("/v1/history", params=user).json()
            assert (history["known"], history["num_items"]) == (True, 3)
        assert recommender.similar_items(normalize("NFD", CAFE), 2)[0].item_ids

"""New items: a product that nobody has bought is in lists because of its category and brand."""

import random
from pathlib import Path

import foretaste
from foretaste.training import Callback

# 1. 200 products of 8 kinds and 25 brands. People stay with two kinds and three brands.
draw = random.Random(3)
kinds, brands = [f"kind-{n}" for n in range(8)], [f"brand-{n}" for n in range(25)]
products = {item: (draw.choice(kinds), draw.choice(brands)) for item in range(200)}
lines = [f"{item},{kind},{brand}" for item, (kind, brand) in products.items()]
purchases = []
for person in range(500):
    own_kinds, own_brands = set(draw.sample(kinds, 2)), set(draw.sample(brands, 3))
    liked = [i for i, (kind, brand) in products.items() if kind in own_kinds or brand in own_brands]
    purchases += [f"{person},{item}" for item in draw.sample(liked, 12)]
Path("purchases.csv").write_text("\n".join(["user_id,item_id", *purchases, ""]))

# 2. Two products came in today: nobody has bought them, and each has a kind and a brand.
new = {900: ("kind-3", "brand-4"), 901: ("kind-5", "brand-9")}
lines += [f"{item},{kind},{brand}" for item, (kind, brand) in new.items()]
Path("products.csv").write_text("\n".join(["item_id,kind,brand", *lines, ""]))

features = {"items": "products.csv", "features": ["kind", "brand"]}
options = {"callback": Callback(), "overwrite": True}
dataset = foretaste.prepare("purchases.csv", "datasets/all", protocol="none", **features)
run = foretaste.train("ease", dataset, run="runs/all", feature_weight=30.0, **options)
recommender = foretaste.load(run)
print("listed items:", dataset.manifest.num_listed_items)
print("like 900:", [products[i] for i in recommender.similar_items([900], k=3)[0].item_ids])
bought = [item for item, (_, brand) in products.items() if brand == "brand-4"][:3]
(answer,) = recommender.recommend_for([bought], k=10)
print("for a friend of brand-4:", [item for item in answer.item_ids if item in new])

# 3. How well does it find them? Hold out a tenth of the products with all of their purchases.
dataset = foretaste.prepare("purchases.csv", "datasets/held", protocol="new-items", **features)
for weight in (0.0, 30.0):
    run = foretaste.train("ease", dataset, run="runs/held", feature_weight=weight, **options)
    found = foretaste.evaluate_run(run, candidates="new", k=5)["recall_all@5"]
    print(f"feature weight {weight:4}: recall_all@5 among new items {found:.2f}")

"""A shop: from a table of purchases to lists, beside an item, under rules, and measured.

Put your own file in place of `purchases`: pandas, Polars and Arrow tables and paths all work.
"""

from pathlib import Path

import foretaste
from foretaste.data import GenerateConfig, generate
from foretaste.training import Callback

generated = generate(GenerateConfig(num_users=800, num_items=300, num_interactions=24_000))
purchases, products = generated.table, generated.items
silent = Callback()

# 1. Learn from all purchases. Nothing is left on the disk until `save`.
recommender = foretaste.fit("ease", purchases, items=products, callback=silent)
print("A customer:")
for item in recommender.recommend(42, k=3)[0].items:
    print(f"  {item.item_id:4}  {item.title}")

print("A visitor with two products in the basket:")
basket = recommender.items.ids()[3:18:14]
for item in recommender.recommend_for([basket], k=3)[0].items:
    print(f"  {item.item_id:4}  {item.title}")

print("Beside a product:", recommender.similar_items(basket[:1], k=3)[0].item_ids)

# 2. What is in stock changes from hour to hour, and needs no training.
ids = products["item_id"].to_pylist()
Path("stock.csv").write_text("item_id,stock\n" + "".join(f"{i},{i % 3}\n" for i in ids))
Path("rules.toml").write_text('in-stock = "stock > 0"\n')
recommender.read_rules("rules.toml", items="stock.csv")
(answer,) = recommender.recommend(42, k=3, rules=["in-stock"], max_per={"genre": 1})
print("In stock, one of each genre:", answer.item_ids)

# 3. Measure: hold out the last purchase of each customer, and look whether the lists have it.
dataset = foretaste.prepare(purchases, "datasets/shop", items=products, protocol="leave-one-out")
runs = [
    foretaste.train(model, dataset, run=f"runs/{model}", callback=silent, overwrite=True)
    for model in ("popularity", "ease")
]
gain = foretaste.compare_runs(runs, k=10).differences["ease"]["ndcg@10"]
print(f"ease less popularity, ndcg@10: {gain.value:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})")

# 4. Keep it: every command reads a run, and `foretaste serve runs/shop` answers from it.
print(recommender.save("runs/shop", overwrite=True))

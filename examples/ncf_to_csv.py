"""Write the data that NCF prepared as CSV: python ncf_to_csv.py FOLDER"""

import sys

import pandas

for name in ("train_ratings", "test_ratings"):
    table = pandas.read_pickle(f"{sys.argv[1]}/{name}.pickle")
    table.to_csv(f"{name}.csv", columns=["user_id", "item_id"], index=False)

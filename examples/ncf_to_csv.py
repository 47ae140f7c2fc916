"""Write the data that NCF prepared as CSV: python ncf_to_csv.py FOLDER"""

import sys
from pathlib import Path

import pandas

FOLDER = Path(sys.argv[1])

for name in ("train_ratings", "test_ratings"):
    path = FOLDER / f"{name}.pickle"
    if not path.is_file():
        sys.exit(f"{path} is no file; give the folder into which NCF wrote its pickles")
    table = pandas.read_pickle(path)
    table.to_csv(f"{name}.csv", columns=["user_id", "item_id"], index=False)

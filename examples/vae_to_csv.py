"""Write the data that VAE-CF prepared as CSV, in its first ids: python vae_to_csv.py FOLDER"""

import json
import sys
from pathlib import Path

from scipy.sparse import load_npz

FOLDER = Path(sys.argv[1])
SPLITS = (
    {"train_data": "train"},
    {"vad_data_true": "validation_fold_in", "vad_data_test": "validation"},
    {"test_data_true": "test_fold_in", "test_data_test": "test"},
)


def read_ids(name):
    numbers = json.loads((FOLDER / name).read_text())
    return sorted(numbers, key=numbers.get)


user_ids, item_ids = read_ids("profile2id.json"), read_ids("show2id.json")
matrices = {path.stem: load_npz(path).tocoo() for path in FOLDER.glob("*.npz")}
first_rows = [0]
for split in SPLITS:
    (num_users,) = {matrices[name].shape[0] for name in split}
    first_rows.append(first_rows[-1] + num_users)
if first_rows[-1] != len(user_ids):
    sys.exit("a held-out user is missing, so whose rows these are cannot be told")
for split, first_row in zip(SPLITS, first_rows):
    for name, part in split.items():
        with open(f"{part}.csv", "w") as file:
            file.write("user_id,item_id\n")
            for row, column in zip(matrices[name].row, matrices[name].col):
                file.write(f"{user_ids[first_row + row]},{item_ids[column]}\n")

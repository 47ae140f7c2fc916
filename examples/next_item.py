"""The next item: `slist` and `sasrec` read the order of a history, and `ease` does not."""

import random
from pathlib import Path

import foretaste
from foretaste.training import Callback

# 1. People who walk through 60 rooms, mostly to the next room or the one behind it.
draw = random.Random(7)
rows = []
for person in range(400):
    room, rooms = draw.randrange(60), []
    while len(rooms) < 12:
        if room not in rooms:
            rooms.append(room)
        room = (room + draw.choice([1, 1, 1, 2, 2, 7, 30])) % 60
    rows += [f"{person},{room},{hour}" for hour, room in enumerate(rooms)]
Path("walks.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows, ""]))

# 2. With times, the last item of each person is held out: the protocol leave-one-out.
dataset = foretaste.prepare("walks.csv", "datasets/walks")
models = {"popularity": {}, "ease": {}, "slist": {}, "sasrec": {"epochs": 10}}
options = {"callback": Callback(), "overwrite": True}
runs = [
    foretaste.train(model, dataset, run=f"runs/{model}", **options, **settings)
    for model, settings in models.items()
]
for run in runs:
    print(f"{run.config.model:10}  hr@10 {run.metrics['hr@10']:.2f}")

# 3. The newest item says the most, so the order of a history changes the list.
ease, slist = foretaste.load("runs/ease"), foretaste.load("runs/slist")
for history in ([10, 40], [40, 10]):
    (by_slist,), (by_ease,) = (model.recommend_for([history], k=3) for model in (slist, ease))
    print(f"after {history}: slist {by_slist.item_ids}, ease {by_ease.item_ids}")

# 4. A blend of both kinds of model often finds more than each.
blend = foretaste.blend(["runs/slist", "runs/sasrec"], run="runs/blend", **options)
print(f"blend       hr@10 {blend.metrics['hr@10']:.2f}")

"""The service: lists over HTTP, and events that count in the next list without a training."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import foretaste
from foretaste.data import GenerateConfig, generate
from foretaste.training import Callback

# 1. A run to serve. Every run will do; this one learns from all of a made-up table.
generated = generate(GenerateConfig(num_users=800, num_items=300, num_interactions=24_000))
fitted = foretaste.fit("ease", generated.table, items=generated.items, callback=Callback())
fitted.save("runs/served", overwrite=True)
Path("events.db").unlink(missing_ok=True)
Path("rules.toml").write_text("no-cookery = \"genre <> 'cookery'\"\n")

# 2. In a shell: foretaste serve runs/served --events events.db --rules-file rules.toml
command = "-m foretaste serve runs/served --port 0 --events events.db --rules-file rules.toml"
service = subprocess.Popen(
    [sys.executable, *command.split(), "--no-access-log"],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
address = next(found[0] for line in service.stdout if (found := re.search(r"http://[\d.:]+", line)))


def ask(path, body):
    """The answer to a body of JSON, as `curl -s --json BODY ADDRESS/PATH` prints it."""
    request = Request(
        address + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    return json.load(urlopen(request))


def show(title, user, **options):
    (answer,) = ask("/v1/recommend", {"users": [user], "k": 3, **options})["answers"]
    print(title, [item["item_id"] for item in answer["items"]], answer["reason"] or "")


try:
    show("user 42:", {"user_id": 42})
    show("by a history:", {"history": [4, 18]})
    show("under a rule:", {"user_id": 42}, rules=["no-cookery"], max_per={"genre": 1})
    show("nobody:", {"user_id": 9001})

    # 3. A visitor puts a product into the basket. `event_id` is yours: sent again, it counts once.
    event = {"event_id": "basket-1", "user_id": 9001, "item_id": 4}
    print(ask("/v1/events", {"events": [event, event]}))
    show("after the event:", {"user_id": 9001})
    print(ask("/v1/events/withdraw", {"event_ids": ["basket-1"]}))
    show("withdrawn:", {"user_id": 9001})
finally:
    service.terminate()
    print("ended with status", service.wait())

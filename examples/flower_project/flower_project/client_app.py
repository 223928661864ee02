"""What a SuperNode runs for each message."""

from pathlib import Path

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_project.task import load_data
from plures.core.types import Batch
from plures.data import ClientData
from plures.data.client import make_client
from plures.deploy.flower.packing import packed, unpacked
from plures.deploy.handler import Handler
from plures.recipes import load_experiment

app = ClientApp()
EXPERIMENT = load_experiment(Path(__file__).with_name("experiment.toml"))


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Whatever Plures asks; what is personal stays in the folder `state`, which the node's operator names."""
    node = context.node_config
    state = Path(str(node.get("state", Path.home() / ".flower_project"))) / str(node["partition-id"])
    handler = Handler(EXPERIMENT, lambda: own_data(context), state, f"client-{node['partition-id']}", print)
    return Message(packed(handler.handle(unpacked(message.content))), reply_to=message)


def own_data(context: Context) -> ClientData:
    """The project's arrays, as Plures takes them."""
    arrays = load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    train, test = (Batch(*map(torch.from_numpy, arrays[split])) for split in ("train", "test"))
    return make_client(train, None, test, EXPERIMENT.data.label_space)

"""FedJAX: its own federated averaging on haiku networks; FedPer as an algorithm written with `for_each_client`.

Every client is trained once before the clock starts: last batches differ in size, and jax compiles for each size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from fedjax.core import tree_util
from task import CLASSES, RATE, arguments, clients, num_steps, tell

HEAD = "head"

Cohort = list[tuple[Any, fedjax.ClientDataset, Any]]
Round = Callable[[Any, Cohort], Any]
"""(state, cohort) -> state."""


def forward(model: str, width: int) -> hk.Transformed:
    def network(batch: dict[str, jax.Array]) -> jax.Array:
        hidden = batch["x"]
        if model == "cnn":
            for channels in (32, 64):
                hidden = jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID")(hidden))
                hidden = hk.MaxPool(2, 2, "VALID")(hidden)
        hidden = hk.Flatten()(hidden)
        hidden = jax.nn.relu(hk.Linear(width if model == "mlp" else 2048)(hidden))
        return hk.Linear(CLASSES, name=HEAD)(hidden)

    return hk.transform(network)


def make_model(model: str, width: int) -> fedjax.Model:
    sample = {"x": np.zeros((1, 28, 28, 1), np.float32), "y": np.zeros(1, np.int32)}
    return fedjax.create_model_from_haiku(
        forward(model, width),
        sample,
        lambda batch, output: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], output),
        eval_metrics={"loss": fedjax.metrics.CrossEntropyLoss(), "accuracy": fedjax.metrics.Accuracy()},
    )


def split(params: Any) -> tuple[Any, Any]:
    """(body, head)."""
    return hk.data_structures.partition(lambda module, name, value: module != HEAD, params)


def hparams_of(asked: argparse.Namespace, num_examples: int) -> fedjax.ShuffleRepeatBatchHParams:
    """Batches of a client; all examples at once need no shuffling."""
    if asked.batch:
        return fedjax.ShuffleRepeatBatchHParams(batch_size=asked.batch, num_epochs=asked.epochs)
    return fedjax.ShuffleRepeatBatchHParams(batch_size=num_examples, num_epochs=asked.epochs, skip_shuffle=True)


def evaluation(model: fedjax.Model, *, personal: bool) -> Round:
    """Loss and accuracy of every client of the cohort, in batches padded to the size of the largest."""
    evaluator = fedjax.ModelEvaluator(model)

    def run(state: Any, cohort: Cohort) -> Any:
        largest = max(len(data) for _, data, _ in cohort)
        batches = [(client, data.padded_batch(batch_size=largest)) for client, data, _ in cohort]
        if personal:
            body, first, heads = state
            own = [(c, b, hk.data_structures.merge(body, heads.setdefault(c, first))) for c, b in batches]
            found = evaluator.evaluate_per_client_params(own)
        else:
            found = evaluator.evaluate_global_params(state, batches)
        scores = {client: {name: float(value) for name, value in metrics.items()} for client, metrics in found}
        assert len(scores) == len(cohort)
        return state

    return run


def fedper(grad: Any, optimizer: Any, asked: argparse.Namespace) -> Round:
    """One round of FedPer on (body, first head, heads by client)."""

    def begin(body: Any, own: Any) -> Any:
        params = hk.data_structures.merge(body, own["head"])
        return {"params": params, "optimizer": optimizer.init(params), "rng": own["rng"]}

    def step(state: Any, batch: Any) -> Any:
        rng, used = jax.random.split(state["rng"])
        kept, params = optimizer.apply(grad(state["params"], batch, used), state["optimizer"], state["params"])
        return {"params": params, "optimizer": kept, "rng": rng}

    def end(body: Any, state: Any) -> Any:
        moved, head = split(state["params"])
        return jax.tree_util.tree_map(lambda old, new: old - new, body, moved), head

    train = fedjax.for_each_client(begin, step, end)

    def run(state: Any, cohort: Cohort) -> Any:
        body, first, heads = state
        sizes = {client: len(data) for client, data, _ in cohort}
        work = [
            (
                client,
                data.shuffle_repeat_batch(hparams_of(asked, len(data))),
                {"head": heads.get(client, first), "rng": rng},
            )
            for client, data, rng in cohort
        ]
        total = tree_util.tree_zeros_like(body)
        for client, (delta, head) in train(body, work):
            heads[client] = head
            total = tree_util.tree_add(total, tree_util.tree_weight(delta, sizes[client]))
        mean = tree_util.tree_inverse_weight(total, float(sum(sizes.values())))
        return jax.tree_util.tree_map(lambda old, change: old - change, body, mean), first, heads

    return run


def main() -> None:
    asked = arguments()
    population = {
        number: {"x": client.inputs.transpose(0, 2, 3, 1), "y": client.targets.astype(np.int32)}
        for number, client in enumerate(clients(asked.data))
    }
    data = fedjax.InMemoryFederatedData(population)
    model = make_model(asked.model, asked.width)
    grad, optimizer = fedjax.model_grad(model), fedjax.optimizers.sgd(RATE)
    params = model.init(jax.random.PRNGKey(0))
    personal = (*split(params), {})
    run: Round
    if asked.evaluate:
        run, state = evaluation(model, personal=asked.personal_head), personal if asked.personal_head else params
    elif asked.personal_head:
        run, state = fedper(grad, optimizer, asked), personal
    else:
        hparams = hparams_of(asked, max(len(client["y"]) for client in population.values()))
        algorithm = fed_avg.federated_averaging(grad, optimizer, fedjax.optimizers.sgd(1.0), hparams)
        run, state = lambda state, cohort: algorithm.apply(state, cohort)[0], algorithm.init(params)
    everybody = [(n, data.get_client(n), jax.random.PRNGKey(n)) for n in population]
    state = jax.block_until_ready(run(state, everybody))
    cohort_size = len(population) if asked.evaluate else asked.cohort
    sampler = fedjax.client_samplers.UniformGetClientSampler(fd=data, num_clients=cohort_size, seed=0)
    seconds, steps = list[float](), list[int]()
    for _ in range(asked.warm_up + asked.rounds):
        began = time.perf_counter()
        cohort = sampler.sample()
        state = jax.block_until_ready(run(state, cohort))
        seconds.append(time.perf_counter() - began)
        steps.append(sum(num_steps(len(client), asked) for _, client, _ in cohort))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree_util.tree_leaves(state))
    first = asked.warm_up
    tell("fedjax", version("fedjax"), seconds[first:], steps[first:], jax=jax.__version__)


main()

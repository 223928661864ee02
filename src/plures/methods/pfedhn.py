"""pFedHN: a hypernetwork at the server makes each client's model of an embedding of the client.

Shamsian, Navon, Fetaya, Chechik, "Personalized Federated Learning using Hypernetworks", ICML 2021.

    received  theta_i = h(e_i; phi);    K steps of SGD on F_i lead to theta_i';    sent  delta_i = theta_i - theta_i'
    server:   (phi, e_i)  <-  (phi, e_i) - server_lr * (d theta_i / d (phi, e_i))^T delta_i     (momentum, weight decay)

With `personal` layers, which the hypernetwork does not make, this is the paper's pFedHN-PC. Deviations from the paper:
a round may have several clients; they have their turns in an order that is drawn, or with `one_by_one=False` one step
on their mean. An embedding moves, decays and has momentum only in its own client's steps. The momentum of personal
layers starts anew at each visit, and all clients start with the same ones; embeddings have no rate of their own. As in
the paper's code, `clip_norm` is not for personal layers.
"""

from __future__ import annotations

from dataclasses import replace

from plures.core.method import Budget, Method, Optimizer, Phase
from plures.core.types import PERSONAL, SHARED
from plures.local import as_optimizer, delta, sgd, steps
from plures.methods.options import FIVE_EPOCHS, Duration, Rule, Selection
from plures.methods.registry import register
from plures.parts import BufferPolicy, all_shared, split
from plures.server.hyper_round import EmbeddingSteps, HyperRound
from plures.server.hypernetwork import HYPER, Hypernetwork, own_model
from plures.server.weights import uniform

FIFTY_BATCHES: Budget = steps(50, batch=64)
ON_CLIENTS: Optimizer = sgd(0.005, momentum=0.9, weight_decay=5e-5)
AT_THE_SERVER: Optimizer = sgd(0.01, momentum=0.9, weight_decay=1e-3)


@register(
    title="pFedHN",
    paper="Shamsian et al. 2021",
    shared="a hypernetwork, at the server",
    personal="an embedding, at the server; any part",
    sent="change of the client's model",
)
def pfedhn(
    *,
    personal: Selection = all_shared(),  # noqa: B008 - a frozen value
    hidden: int = 100,
    layers: int = 3,
    embedding: int | None = None,
    lr: Rule = ON_CLIENTS,
    budget: Duration = FIFTY_BATCHES,
    clip_norm: float | None = 50.0,
    adapt: Duration = FIVE_EPOCHS,
    newcomer_steps: int = 50,
    server: Rule = AT_THE_SERVER,
    server_clip: float | None = 50.0,
    one_by_one: bool = True,
    buffers: BufferPolicy | None = None,
) -> Method:
    """No `embedding`: of int(1 + clients / 4) numbers. The head as `personal` part: pFedHN-PC.

    A newcomer's embedding takes `newcomer_steps` with the hypernetwork held still; `adapt` is for fine-tuning alone.
    """
    limit = None if clip_norm is None else {SHARED: clip_norm}
    hyper = Hypernetwork(rule=as_optimizer(server), hidden=hidden, layers=layers, embedding=embedding)
    train = Phase(train=(SHARED, PERSONAL), budget=budget, optimizer=as_optimizer(lr), clip_norm=limit)
    return Method(
        split=split(personal, buffers=buffers),
        local=(train,),
        upload=delta,
        weight=uniform,
        server={HYPER: hyper.rule},
        download=own_model,
        extend=hyper,
        start=hyper.begin,
        adapt=(replace(train, budget=adapt),),
        welcome=EmbeddingSteps(count=newcomer_steps, clip_norm=server_clip),
        run_round=HyperRound(one_by_one=one_by_one, clip_norm=server_clip),
    )

"""One recipe for each table and figure."""

from __future__ import annotations

from collections.abc import Mapping

from plures.papers.pfedgate import few_tables as few
from plures.papers.pfedgate import figures as f
from plures.papers.pfedgate import tables as t
from plures.papers.pfedgate.counts import DENSITIES, TABLE_3
from plures.papers.pfedgate.rates import rate_cells, show_rates
from plures.papers.recipe import Recipe, Scale

SMALL = "12,000 images, 20 clients, Dirichlet 0.4, 100 rounds, batches of 64, rates a tenth from round 76 on"
MICRO = "2,000 images of Fashion-MNIST, 10 clients, Dirichlet 0.4, 30 rounds, batches of 16, a narrower LEAF-CNN"
FULL = (
    "100 clients (FEMNIST: 539 writers, CIFAR-100: 50), Dirichlet 0.4, 400 rounds, batches of 128, rates a tenth from "
    "round 301 on"
)
CLOTHES = f"Fashion-MNIST with LEAF-CNN; {SMALL}"
BOTH = f"Fashion-MNIST with LEAF-CNN and CIFAR-10 with LeNet; {SMALL}"
LONG = "A run on CIFAR-10 takes about 7 hours on two cores, and FedEM three times as long."
MISSING = f"EMNIST, FEMNIST and CIFAR-100 are not at hand. {LONG}"
NO_WRITERS = f"FEMNIST is not at hand. {LONG}"
NO_LETTERS = "EMNIST is not at hand."

STAND_INS = (
    "Fashion-MNIST stands in for EMNIST and FEMNIST, which have 62 classes and more clients; data, clients and "
    "rounds are fewer. "
)
PROTOCOL = (
    "The authors evaluate pFedGate right after local training, which is one epoch more than FedAvg and FedEM get, "
    "and log the best round on test data; here all methods are evaluated in both ways, in the last round and in the "
    "one that is best on validation data. "
)
WAYS = (
    "Gates are one set for a batch, as in the authors' code; aggregation is by index and dropped blocks learn, as in "
    "the paper's text, where the code averages dense models. "
)
SLOW = (
    "Gates near 0.5 shrink what each layer passes on, so that pFedGate starts more slowly than the others, and short "
    "runs show that. "
)
CHOICES = (
    "The paper does not say which layers LG-FedAvg keeps (here the convolutions), what weights FedMask starts from "
    "(here FedAvg's, after a third of the rounds), how wide HeteroFL's half models are (here 0.7 of the channels) "
    "and what rates the other methods had."
)


def settings(small: str, *, more: str = "") -> Mapping[Scale, str]:
    return {"micro": MICRO + more, "small": small + more, "full": FULL + more}


RECIPES = (
    Recipe(
        name="table-1",
        title="Accuracy of ten methods and of pFedGate with s = 1, 0.5 and 0.3",
        cells=t.main_cells,
        show=t.show_main,
        settings=settings(BOTH),
        without={"full": MISSING},
        differs=STAND_INS + PROTOCOL + WAYS + SLOW + CHOICES,
    ),
    Recipe(
        name="table-2",
        title="The gate without its norms, without its sigmoid, and for a client as a whole",
        cells=t.ablation_cells,
        show=t.show_ablations,
        settings=settings(CLOTHES, more="; s = 0.5"),
        without={"full": "EMNIST and CIFAR-100 are not at hand."},
        differs=STAND_INS
        + PROTOCOL
        + "The paper calls its gates sample-wise; its code has gates for a batch. Both are here.",
    ),
    TABLE_3,
    Recipe(
        name="table-5",
        title="Clients that come after training",
        cells=few.newcomer_cells,
        show=few.show_newcomers,
        settings=settings(BOTH, more="; a fifth of the clients held out"),
        without={"full": NO_WRITERS},
        differs=STAND_INS
        + "The paper does not say for how many epochs newcomers train; here their gates have five. Its newcomers of "
        "FedAvg are below participants with the shared model, so it seems that they did not fine-tune.",
    ),
    Recipe(
        name="table-6",
        title="A fifth of the clients in a round",
        cells=few.sampled_cells,
        show=few.show_sampled,
        settings={
            "micro": f"{MICRO}; a fifth of the clients in a round, twice as many rounds",
            "small": f"{BOTH}; a fifth of the clients in a round, five times as many rounds",
            "full": f"{FULL}; a fifth of the clients in a round, 2,000 rounds as in the authors' scripts",
        },
        without={"full": NO_WRITERS},
        differs=STAND_INS
        + "Clients are evaluated after averaging, with the latest shared network. The authors' scripts have five "
        "times as many rounds, so that a client is called as often as before; at the scale micro it is called less "
        "often.",
    ),
    Recipe(
        name="table-7",
        title="Numbers of blocks, and FedMask",
        cells=few.split_cells,
        show=few.show_splits,
        settings=settings(BOTH),
        without={"full": NO_WRITERS},
        differs=STAND_INS
        + PROTOCOL
        + "With B = 2 and s = 0.3 the authors' code keeps half of the network, more than the client can afford; here "
        "the first piece is smaller, as in the paper's text, and s is kept. " + SLOW,
    ),
    Recipe(
        name="figure-3",
        title="Accuracy of pFedGate minus that of FedEM, client by client",
        cells=f.difference_cells,
        show=f.show_differences,
        settings=settings(f"CIFAR-10 with LeNet; {SMALL}", more="; s = 0.5"),
        without={"full": LONG},
        differs="Fewer clients, data and rounds; at the scale micro, Fashion-MNIST in place of CIFAR-10. " + PROTOCOL,
    ),
    Recipe(
        name="figure-4",
        title="Clients by the distance of their gates",
        cells=f.tree_cells,
        show=f.show_tree,
        settings={
            "micro": "2,000 images of Fashion-MNIST, 10 clients with two shards each, 30 rounds, s = 0.3",
            "small": "12,000 images of CIFAR-10, 10 clients with two shards each, 100 rounds, s = 0.3",
            "full": "CIFAR-10, 10 clients with two shards each, 400 rounds, s = 0.3",
        },
        without={"full": LONG},
        differs="The paper does not say how many shards a client has (here two), and judges the tree by eye; here a "
        "permutation test does. At the scale micro, Fashion-MNIST is in place of CIFAR-10.",
    ),
    Recipe(
        name="figure-5",
        title="pFedGate with s from 1 to 0.1, and with mixed capacities",
        cells=f.sweep_cells,
        show=f.show_sweep,
        settings=settings(CLOTHES),
        without={"full": NO_LETTERS},
        differs=STAND_INS
        + "The paper shows no numbers. With mixed capacities the share that is always kept is 0.1 for all. "
        + SLOW,
    ),
    Recipe(
        name="figure-6",
        title="Accuracy over rounds",
        cells=f.curve_cells,
        show=f.show_curves,
        settings=settings(CLOTHES),
        without={"full": NO_LETTERS},
        differs=STAND_INS + PROTOCOL + SLOW,
    ),
    Recipe(
        name="figure-7",
        title="Histograms of gate weights over rounds",
        cells=f.histogram_cells,
        show=f.show_histograms,
        settings=settings(f"CIFAR-10 with LeNet; {SMALL}", more="; s = 0.5"),
        without={"full": LONG},
        differs="Fewer clients, data and rounds; at the scale micro, Fashion-MNIST in place of CIFAR-10. The paper "
        "does not say which s it shows.",
    ),
    DENSITIES,
    Recipe(
        name="rates",
        title="Rates for the scale small (not in the paper)",
        cells=rate_cells,
        show=show_rates,
        settings={"small": f"{BOTH}; the first 25 rounds at a steady rate"},
        without={"micro": "Rates were tried by hand.", "full": "Rates are the paper's."},
        differs="The paper looked for each method's own rate, at four times the rounds; here FedAvg's and Local's "
        "stand for all methods of their kind, and more was tried for pFedGate than for them. With the paper's rates "
        "of pFedGate so few rounds come to nothing.",
    ),
)

"""What the page of the PFLEGO papers says in words."""

from __future__ import annotations

from plures.papers.recipe import Scale

FLAT_SETTINGS: dict[Scale, str] = {
    "micro": "A tenth of the training images, 100 clients, 20 in a round, 50 steps, 60 rounds; CIFAR-10: 2,000 "
    "images, 20 clients, 4 in a round, 10 steps, 30 rounds, a narrower network; UNIPEN in place of EMNIST.",
    "small": "A fifth of the training images, 200 rounds; CIFAR-10: 5,000 images, 50 clients, 10 steps, 100 rounds, "
    "a narrower network; UNIPEN in place of EMNIST.",
    "full": "The papers' setting: 100 clients, 20 in a round, 50 full-batch steps, 200 rounds, their best rates.",
}
SWEEP_SETTINGS: dict[Scale, str] = {
    "micro": "MNIST, two classes each, a tenth of the images, 60 rounds.",
    "small": "MNIST, two classes each, a fifth of the images, 200 rounds.",
    "full": "The papers' data, 200 rounds of CIFAR-10 or 5,000 rounds of Omniglot.",
}
ALPHABET_SETTINGS: dict[Scale, str] = {
    "micro": "8 alphabets, up to 300 drawings each, 2 in a round, 16 filters, 10 steps, 80 rounds; split by drawing.",
    "small": "12 alphabets, 3 in a round, 32 filters, 10 steps, 300 rounds; split by drawing.",
    "full": "50 alphabets, 10 in a round, 64 filters, 50 steps, 5,000 rounds; turned copies on both sides.",
}
RUN_AT_FULL = "MNIST and Fashion-MNIST were run at full instead."
NO_EMNIST = "EMNIST is not at hand here; FedPer or FedAvg on CIFAR-10 would take nine days each on two cores."
NO_PHOTOS = "Nine days a run on two cores for FedPer and FedAvg with the papers' network on CIFAR-10."
NO_ALPHABETS = "5,000 rounds of 50 steps take more than a week a method on two cores."
PROTOCOL = (
    "The authors' code scores the clients of a round right after their local training (E3), FedAvg too, where the "
    "text says all clients; and it numbers each client's classes anew, so that an output of the shared head means "
    "another digit on every client. FedAvg's high numbers at high personalisation are those of models trained for "
    "50 more steps on the client's own data; the shared model itself is far lower. The papers' ± is a mean over "
    "the last 10 rounds of an interval that they do not define; ours is over seeds, and over these rounds in a "
    "table of its own. Weights of PFLEGO's sum, Adam at the server and U[0, 1) heads follow the authors' code."
)
ALPHABETS_DIFFER = (
    "Fewer alphabets, filters, steps and rounds, and no turned copies of test drawings among the training ones, "
    "which the authors' split has. Pulls of FedProx and Ditto are not in the papers: 0.01 and 0.1. With the papers' "
    "rates nothing is learnt in so few steps; at the scale small, rates are the best on validation drawings "
    "(alphabet-rates), and half of FedRep's steps are the body's: the papers do not say how many, and one is too few. "
    "There FedBABU is far below what was published and still rising at the end; likely, not tested, it needs more "
    "rounds."
)
DIGITS_DIFFER = (
    "Digits and the perceptron in place of photographs and convolutions; both rates are 0.001, as published."
)

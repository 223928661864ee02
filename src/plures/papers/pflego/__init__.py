"""PFLEGO: its 2022 and 2023 texts, item by item."""

from __future__ import annotations

from plures.papers.pflego import alphabet_rates, figures, tables
from plures.papers.pflego.claims import CLAIMS, DIRECTIONS
from plures.papers.pflego.counts import show_counts, show_exactness
from plures.papers.pflego.further_claims import FURTHER_CLAIMS
from plures.papers.pflego.words import (
    ALPHABET_SETTINGS,
    ALPHABETS_DIFFER,
    DIGITS_DIFFER,
    FLAT_SETTINGS,
    NO_ALPHABETS,
    NO_EMNIST,
    NO_PHOTOS,
    PROTOCOL,
    RUN_AT_FULL,
    SWEEP_SETTINGS,
)
from plures.papers.recipe import Paper, Recipe

mnist_cells, show_mnist = figures.by_degree("mnist")
clothes_cells, show_clothes = figures.by_degree("fashion-mnist")
photo_cells, show_photos = figures.by_degree("cifar-10")
letter_cells, show_letters = figures.by_degree("emnist")

PAPER = Paper(
    name="pflego",
    title="PFLEGO: personalised federated learning with exact SGD",
    citation=(
        "S. Nikoloutsopoulos, I. Koutsopoulos, M. K. Titsias. *Personalized Federated Learning with Exact Stochastic "
        "Gradient Descent*, 2022, and *Personalized Federated Learning with Exact Distributed Stochastic Gradient "
        "Descent Updates*, 2023. Items are those of 2023 unless their name says 2022."
    ),
    data=("mnist", "fashion-mnist", "cifar-10", "unipen (for EMNIST)", "omniglot"),
    recipes=(
        Recipe(
            name="table-1",
            title="test accuracy by degree of personalisation",
            cells=tables.image_cells,
            show=tables.show_table_1,
            settings=FLAT_SETTINGS,
            without={"small": RUN_AT_FULL, "full": NO_EMNIST},
            differs=PROTOCOL,
        ),
        Recipe(
            name="table-2",
            title="test accuracy of eight methods on Omniglot",
            cells=tables.alphabet_cells,
            show=tables.show_table_2,
            settings=ALPHABET_SETTINGS,
            without={"full": NO_ALPHABETS},
            differs=ALPHABETS_DIFFER,
        ),
        Recipe(
            name="figure-2",
            title="MNIST over rounds (Figure 3 of 2022)",
            cells=mnist_cells,
            show=show_mnist,
            settings=FLAT_SETTINGS,
            without={"small": RUN_AT_FULL},
        ),
        Recipe(
            name="figure-3",
            title="Omniglot over rounds (Figure 2 of 2022)",
            cells=tables.alphabet_cells,
            show=figures.show_alphabets,
            settings=ALPHABET_SETTINGS,
            without={"full": NO_ALPHABETS},
        ),
        Recipe(
            name="figure-4",
            title="PFLEGO and FedRecon by the number of steps",
            cells=figures.steps_cells,
            show=figures.show_steps,
            settings=SWEEP_SETTINGS,
            without={"full": NO_ALPHABETS},
            differs="Digits in place of alphabets.",
        ),
        Recipe(
            name="figure-6",
            title="participation (Figures 5 and 11 of 2022)",
            cells=figures.participation_cells,
            show=figures.show_participation,
            settings=SWEEP_SETTINGS,
            without={"full": NO_PHOTOS},
            differs=DIGITS_DIFFER,
        ),
        Recipe(
            name="figure-4-2022",
            title="the clients' rate for each rate of the server",
            cells=figures.rates_cells,
            show=figures.show_rates,
            settings=SWEEP_SETTINGS,
            without={"full": NO_ALPHABETS},
            differs="Digits in place of alphabets.",
        ),
        Recipe(
            name="figure-8-2022",
            title="Fashion-MNIST over rounds",
            cells=clothes_cells,
            show=show_clothes,
            settings=FLAT_SETTINGS,
            without={"small": RUN_AT_FULL},
        ),
        Recipe(
            name="figure-9-2022",
            title="CIFAR-10 over rounds",
            cells=photo_cells,
            show=show_photos,
            settings=FLAT_SETTINGS,
            without={"full": NO_PHOTOS},
        ),
        Recipe(
            name="figure-10-2022",
            title="EMNIST over rounds",
            cells=letter_cells,
            show=show_letters,
            settings=FLAT_SETTINGS,
            without={"full": "EMNIST is not at hand here."},
            differs="UNIPEN's characters, also of 62 classes, stand in for EMNIST.",
        ),
        Recipe(
            name="figure-12-2022",
            title="PFLEGO and FedRecon on Omniglot (and Table 6)",
            cells=figures.pair_cells,
            show=figures.show_pair,
            settings=ALPHABET_SETTINGS,
            without={"full": NO_ALPHABETS},
        ),
        Recipe(
            name="alphabet-rates",
            title="rates of Omniglot at the scale small (not in the papers)",
            cells=alphabet_rates.rate_cells,
            show=alphabet_rates.show_alphabet_rates,
            settings={"small": ALPHABET_SETTINGS["small"] + " Here 40 rounds, a fifth of the training drawings apart."},
            without={"micro": "Rates are the papers'.", "full": "Rates are the papers'."},
        ),
        Recipe(name="counts", title="parameters and network passes", show=show_counts),
        Recipe(name="exactness", title="a round is a gradient step on the joint loss", show=show_exactness),
    ),
    claims=(*CLAIMS, *FURTHER_CLAIMS),
    slips=tables.PUBLISHED["notes"],
    directions=DIRECTIONS,
)

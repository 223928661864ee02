"""A picture: every client's accuracy with one model for all, and with a head of its own."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import plures
from plures.local import epochs
from plures.methods import fedavg, fedrep

GREY, RED = "#8791a5", "#e0604c"

federation = plures.data.digits_federation(num_clients=20, classes_per_client=2)
work = {"lr": 0.1, "budget": epochs(2, batch=10)}
one = plures.run(fedavg(**work), federation, plures.models.mlp, rounds=20, cohort=10, seed=0)
many = plures.run(fedrep(**work), federation, plures.models.mlp, rounds=20, cohort=10, seed=0)
pairs = sorted((a.accuracy, b.accuracy) for a, b in zip(one.scores(), many.scores(), strict=True))

figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
clients = range(len(pairs))
axes.vlines(clients, *zip(*pairs, strict=True), color=GREY, linewidth=1.2, zorder=1)
axes.scatter(clients, [shared for shared, _ in pairs], s=40, color=GREY, label="one model for all (FedAvg)")
axes.scatter(clients, [own for _, own in pairs], s=40, color=RED, label="a head of its own (FedRep)")
axes.set(xlabel="20 clients", ylabel="test accuracy", xticks=[], ylim=(-0.04, 1.04))
axes.legend(frameon=False, loc="lower right", labelcolor=GREY)
axes.tick_params(colors=GREY)
axes.xaxis.label.set_color(GREY)
axes.yaxis.label.set_color(GREY)
axes.spines[["top", "right", "bottom"]].set_visible(False)
axes.spines["left"].set_color(GREY)
figure.savefig("one-and-many.svg", transparent=True, metadata={"Date": None})
print(one, many, sep="\n")

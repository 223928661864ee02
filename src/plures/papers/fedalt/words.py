"""What the recipes say of their settings, and of why numbers differ."""

from __future__ import annotations

from plures.papers.fedalt.tasks import STANDS_FOR
from plures.papers.recipe import Scale

SETTINGS: dict[Scale, str] = {
    "micro": "40 clients with MNIST in styles of their own, 60 writers of UNIPEN, 40 users of Stack Exchange; small "
    "networks, 80 to 120 rounds of (a), 20 to 30 of (b), 5 epochs of (c)",
    "small": "100 clients with MNIST in styles of their own and 100 writers of UNIPEN, ResNet8-GN with the stem that "
    "halves images twice, 300 rounds of (a) and 150 of (b); Stack Exchange with a transformer of width 64, 300 and "
    "100; 5 epochs of (c)",
    "full": "as in the paper: ResNet-18 and a transformer on StackOverflow, GLDv2 and EMNIST, 1,000 to 2,500 rounds "
    "of (a) and 500 to 600 of (b), five seeds",
}
WITHOUT: dict[Scale, str] = {
    "full": "EMNIST by writer, GLDv2 and StackOverflow are not at hand, and one stage (a) on EMNIST takes six days "
    "on two cores; GLDv2 also needs ResNet-18 trained on ImageNet, as resnet18-imagenet.pth"
}
DIFFERS = (
    "The data are others: MNIST dealt with skewed labels and turned, bolder or paler by client stands for EMNIST, "
    "Stack Exchange for StackOverflow, and nothing for GLDv2; UNIPEN by writer stands beside them. Clients are "
    "fewer, networks smaller and stage (a) shorter, so that the shared model has more left to learn and gains over "
    "it are larger than the paper's; 'FedAvg, trained on', the shared model after as many further rounds, tells how "
    "much of a gain is that alone. The rate of (a) on images is 0.1, not 0.5, with which the small network learns more "
    "slowly; the server's rates on words are ten times the paper's, for a third of its rounds or less. "
    "Uploads are weighed by examples, as the paper's appendix says; its Algorithm 1 has 1/m, and its code counts "
    "batches. A fifth to a tenth of each client's images is held out for the guard; the paper trained on it. pFedMe is "
    "the published algorithm; in the authors' code its pull has no gradient in the inner steps. Accuracy is of every "
    "client's own model on its own test examples, pooled, after stage (c) unless a column says otherwise."
)


def stands_for(scale: Scale) -> str:
    """Which data are behind the rows."""
    return "; ".join(f"{task}: {what}" for task, what in STANDS_FOR[scale].items()) + "."

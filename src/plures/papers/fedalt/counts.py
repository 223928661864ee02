"""Parameter counts of the partial personalisation architectures: Tables 5 to 7, counted on Plures' own networks."""

from __future__ import annotations

from functools import cache

from torch import nn

from plures.models import resnet18_gn, transformer
from plures.papers.blocks import Block, Entry, Grid
from plures.papers.fedalt.tasks import ADAPTER, EMNIST, GLDV2, OF_IMAGES, OF_TEXT, PARTS, STACKOVERFLOW
from plures.papers.published import load
from plures.papers.recipe import Found, Recipe
from plures.parts import as_selector, bottleneck_adapters, conv_adapters

NAMES = {STACKOVERFLOW: "table-5", GLDV2: "table-6", EMNIST: "table-7"}


@cache
def network(task: str) -> nn.Module:
    """As in the paper."""
    if task == STACKOVERFLOW:
        return transformer()
    if task == GLDV2:
        return resnet18_gn(shape=(3, 224, 224), classes=2028, groups="by_width", stem="large")
    return resnet18_gn(shape=(1, 28, 28), classes=62, groups="by_width")


@cache
def counts(task: str, part: str) -> tuple[int, int]:
    """Personal and shared parameters."""
    module = network(task)
    if part == ADAPTER:
        module = bottleneck_adapters(module) if task == STACKOVERFLOW else conv_adapters(module)
    chosen = as_selector((OF_TEXT if task == STACKOVERFLOW else OF_IMAGES)[part])(module)
    sizes = {name: value.numel() for name, value in module.named_parameters()}
    personal = sum(sizes[name] for name in chosen)
    return personal, sum(sizes.values()) - personal


def total(task: str) -> int:
    """Of the network without adapters: what full personalisation keeps on a device."""
    return sum(value.numel() for value in network(task).parameters())


def show(task: str) -> list[Block]:
    published = load("fedalt")[NAMES[task]]
    rows: dict[str, list[Entry | None]] = {}
    for part in PARTS:
        personal, shared = counts(task, part)
        share = 100 * personal / (personal + shared)
        rows[part] = [
            Entry(measured=f"{personal:,}", published=published[part]["personal"]),
            Entry(measured=f"{shared:,}", published=published[part]["shared"]),
            Entry(measured=f"{share:.2f} %"),
        ]
    return [
        Grid(
            title=f"Parameters for {task}",
            corner="personal part",
            columns=["personal", "shared", "personal share"],
            rows=rows,
            note="Adapters come with the norms of the network's blocks and stem, which are personal too. "
            f"The whole network has {total(task):,} parameters.",
        )
    ]


DIFFERS = (
    "They do not differ, up to the paper's rounding. Its counts are met only if the norms in the blocks (and of the "
    "stem) are personal beside the adapters, as in the authors' code; with them the shared part under adapters is a "
    "little smaller than the network. Adapters here add their input once, not twice, which changes no count."
)


def recipe(task: str, of: str) -> Recipe:
    def shown(found: Found) -> list[Block]:
        return show(task)

    return Recipe(
        name=NAMES[task],
        title=f"personal and shared parameters of the {of}",
        show=shown,
        differs=DIFFERS,
    )


RECIPES = [
    recipe(STACKOVERFLOW, "transformer for StackOverflow"),
    recipe(GLDV2, "ResNet-18 for GLDv2"),
    recipe(EMNIST, "ResNet-18 for EMNIST"),
]

"""Width slices: a network with all but its first channels zero computes what a smaller network does."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plures.models import leaf_cnn, lenet32, mlp, resnet8_gn
from plures.parts.widths import check_slices, sizes, slices
from tests.parts.networks import seeded


class Residual(nn.Module):
    """Batch norms, a block with a shortcut and one without, the mean over places."""

    def __init__(self, first=6, second=10):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, first, 3, padding=1, bias=False), nn.BatchNorm2d(first)
        self.conv1, self.norm1 = nn.Conv2d(first, second, 3, padding=1, stride=2), nn.BatchNorm2d(second)
        self.conv2, self.norm2 = nn.Conv2d(second, second, 3, padding=1), nn.BatchNorm2d(second)
        self.shortcut = nn.Conv2d(first, second, 1, stride=2)
        self.conv3, self.norm3 = nn.Conv2d(second, second, 3, padding=1), nn.BatchNorm2d(second)
        self.head = nn.Linear(second, 4)

    def forward(self, inputs):
        hidden = F.relu(self.norm(self.stem(inputs)))
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(hidden)))))
        hidden = F.relu(inner + self.shortcut(hidden))
        hidden = F.relu(hidden + self.norm3(self.conv3(hidden)))
        return self.head(hidden.mean(dim=(2, 3)))


def separable(width=5):
    """A norm on the input, depthwise convolutions with two outputs a channel, PReLU, sigmoids, flattening, a norm."""
    return nn.Sequential(
        nn.BatchNorm2d(3),
        nn.Conv2d(3, width, 3),
        nn.Sigmoid(),
        nn.Conv2d(width, 2 * width, 3, groups=width),
        nn.PReLU(2 * width),
        nn.Conv2d(2 * width, width, 1, bias=False),
        nn.PReLU(),
        nn.Flatten(),
        nn.BatchNorm1d(16 * width),
        nn.Linear(16 * width, 4),
    )


def decoder(first=4, second=6):
    """Down and up again: the output layer is a convolution."""
    return nn.Sequential(
        nn.Conv2d(3, first, 3, stride=2),
        nn.Tanh(),
        nn.ConvTranspose2d(first, second, 3, stride=2),
        nn.InstanceNorm2d(second, affine=True),
        nn.ConvTranspose2d(second, 2, 3),
    )


def texts(width=7, hidden=10):
    """Embeddings of four words side by side."""
    return nn.Sequential(nn.Embedding(11, width), nn.Flatten(), nn.Linear(4 * width, hidden), nn.Linear(hidden, 3))


def up(size, width):
    """ceil(width * size), in whole hundredths."""
    return -(-size * round(100 * width) // 100)


def made(make, *sizes, **options):
    """In double precision, with running statistics that are those of nobody."""
    module = seeded(make, *sizes, **options).double()
    draws = torch.Generator().manual_seed(1)
    for name, value in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            value.uniform_(0.5, 1.5, generator=draws)
    return module


def masked(module, masks):
    result = deepcopy(module)
    with torch.no_grad():
        for name, value in result.named_parameters():
            value.mul_(masks[name])
    return result


def compact(module, masks, smaller):
    """The smaller network with the kept values, and the statistics of the norms for the kept channels."""
    values, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    with torch.no_grad():
        for name, value in smaller.named_parameters():
            value.copy_(values[name][masks[name]].view_as(value))
        for name, value in smaller.named_buffers():
            mask = masks[name.rpartition(".")[0] + ".weight"]
            value.copy_(buffers[name][mask] if value.dim() else buffers[name])
    return smaller


def pictures(num_examples=5, shape=(3, 8, 8), seed=3):
    return torch.randn(num_examples, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


TOKENS = torch.randint(11, (5, 4), generator=torch.Generator().manual_seed(3))

CASES = {
    "lenet32": (lambda *sizes: lenet32(filters=sizes[:2], fc=sizes[2:]), (6, 10, 20, 9), pictures(shape=(3, 32, 32))),
    "leaf_cnn": (lambda *sizes: leaf_cnn(filters=sizes[:2], fc=sizes[2:]), (6, 10, 30), pictures(shape=(1, 28, 28))),
    "mlp": (lambda *sizes: mlp(hidden=sizes), (15, 11), pictures(shape=(1, 8, 8))),
    "normed": (lambda *sizes: mlp(hidden=sizes, batch_norm=True), (15, 11), pictures(shape=(1, 8, 8))),
    "residual": (Residual, (6, 10), pictures()),
    "separable": (separable, (5,), pictures()),
    "decoder": (decoder, (4, 6), pictures()),
    "texts": (texts, (7, 10), TOKENS),
}
"""A function of widths, widths, and inputs."""


@pytest.mark.parametrize("width", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("case", CASES)
def test_the_masked_network_computes_what_a_smaller_network_does(case, width):
    make, widths, inputs = CASES[case]
    module = made(make, *widths)
    masks = slices(module, width)
    smaller = made(make, *(up(size, width) for size in widths))
    assert sizes(module, width) == {name: value.numel() for name, value in smaller.named_parameters()}
    for training in (False, True):
        small, large = compact(module, masks, smaller).train(training), masked(module, masks).train(training)
        torch.testing.assert_close(large(inputs), small(inputs), rtol=1e-10, atol=1e-12)


def test_where_no_group_of_a_group_norm_is_cut_the_masked_network_is_one_with_fewer_groups():
    # Groups of 8 channels at every width: 16 -> 8, 32 -> 16 and 64 -> 32 channels are 1, 2 and 4 of them.
    module, smaller = made(resnet8_gn), made(resnet8_gn, widths=(8, 16, 32))
    masks = slices(module, 0.5)
    inputs = pictures(2, (1, 28, 28))
    small = compact(module, masks, smaller)
    torch.testing.assert_close(masked(module, masks)(inputs), small(inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_a_try_accepts_what_can_be_sliced_and_leaves_it_as_it_was(case):
    make, widths, inputs = CASES[case]
    module = made(make, *widths)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    check_slices(module, 0.5, inputs)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())

"""What the tests of networks share: counting, drawing, and gradients of a network as a pure function."""

from contextlib import contextmanager

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F


def count(module, names=None):
    """How many values a module has, or those of some of its parameters."""
    return sum(value.numel() for name, value in module.named_parameters() if names is None or name in names)


@contextmanager
def draws(seed):
    """Global draws by a seed that leave the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def made(make, seed=0, **options):
    with draws(seed):
        return make(**options)


def pictures(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape, classes, seed=0):
    return torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(seed))


def loss_of(module, inputs, targets):
    return lambda params: F.cross_entropy(functional_call(module, params, (inputs,)), targets)


def gradients_one_by_one_and_at_once(makers, inputs, targets):
    """Gradients at the parameters of several networks: in a loop of torch.func.grad, and by vmap over all of them."""
    modules = [make() for make in makers]
    params = [{name: value.detach() for name, value in module.named_parameters()} for module in modules]
    loss = loss_of(modules[0], inputs, targets)
    alone = [grad(loss)(own) for own in params]
    stacked = vmap(grad(loss))({name: torch.stack([own[name] for own in params]) for name in params[0]})
    return alone, [{name: value[place] for name, value in stacked.items()} for place in range(len(params))]

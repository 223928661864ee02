"""FedMask's vote: who decides which bits, what is sent for it, and what newcomers and pretraining make of it."""

from __future__ import annotations

import torch

from plures.local import epochs, steps
from plures.models import mlp
from plures.participation import uniform
from plures.recipes import make_experiment, run_experiment
from plures.wire import Codec
from tests.helpers.fedmask import BOTH, ONES, A, W, bits, columns, kept, tiny
from tests.helpers.methods import (
    Given,
    Population,
    assert_same_bits,
    federation,
    network,
)

# The vote


def test_what_all_own_is_the_same_for_all_after_a_round():
    run = tiny(3, Given([(0, 1, 2, 3, 4)]), density=1.0)
    for client in range(5):
        assert torch.equal(bits(run, client), run.shared[f"vote.{W}"])
    sent = [result.upload.values[f"vote.{W}"] for _, result in run.results[-5:]]
    assert torch.equal(torch.stack(sent).sum(0) > 2.5, run.shared[f"vote.{W}"])
    assert any(not torch.equal(one, sent[0]) for one in sent), "they did not agree"


def test_clients_without_a_common_entry_exchange_nothing():
    """Both run together as each runs by itself, bit for bit, and no entry is ever voted on."""
    owned = [columns(0), columns(1, 2)]
    start = lambda: kept([0.01 * ONES * own for own in owned], owned)  # noqa: E731
    together = tiny(3, Given([(0, 1)]), store=start())
    alone = [tiny(3, Given([(client,)]), store=start()) for client in (0, 1)]
    assert not any(value.any() for value in together.shared.values())
    for client in (0, 1):
        assert_same_bits(together.final[client], alone[client].final[client])
        assert not torch.equal(together.final[client][f"score.{W}"], together.states[0][client][f"score.{W}"])


def test_a_lone_owner_keeps_its_own_bits_and_the_common_ones_are_voted():
    """Client 0 has columns 0 and 1, client 1 has 1 and 2 with all ones; of column 1 client 0 has the bits 0, 0, 1.

    Votes on column 1: two ties, so 0 and 0, then 2 of 2.
    """
    owned = [columns(0, 1), columns(1, 2)]
    turned = torch.tensor([[1.0, -1.0, 0.0], [-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]])
    run = tiny(1, Given([(0, 1)]), store=kept([turned, ONES], owned), lr=0.0)
    assert torch.equal(run.shared[f"given.{W}"], columns(1))
    assert run.shared[f"vote.{W}"].int().tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert bits(run, 0).int().tolist() == [[1, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert bits(run, 1).int().tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 1]]
    assert torch.equal(run.results[1][1].upload.values[f"vote.{W}"], owned[1]), "no bits but of its own entries"
    assert torch.equal(run.final[1][f"score.{W}"], ONES.double()), "a score follows at the next visit"


def test_the_next_visit_begins_from_the_vote():
    """The ties above turn the scores of client 1 in column 1: (1, 1, 1) become (-1, -1, 1)."""
    owned = [columns(0, 1), columns(1, 2)]
    turned = torch.tensor([[1.0, -1.0, 0.0], [-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]])
    run = tiny(2, Given([(0, 1), (1,)]), store=kept([turned, ONES * owned[1]], owned), lr=0.0)
    assert run.final[1][f"score.{W}"].tolist() == [[0, -1, 1], [0, -1, 1], [0, 1, 1]]
    assert_same_bits(run.servers[2].shared, run.servers[1].shared)  # one owner is no quorum: the vote stands


def test_right_after_its_work_a_client_is_seen_with_the_bits_that_it_sends():
    run = tiny(3, uniform(3))
    changed = 0
    for visit, result in run.results:
        seen = run.program.method.predict(result.trained, visit.data.inputs)[W] != 0
        assert torch.equal(seen, result.upload.values[f"vote.{W}"])
        assert torch.equal(seen, result.state[f"score.{W}"] > 0)
        changed += not torch.equal(seen, visit.received[f"vote.{W}"])
    assert changed > 3


# What is sent


def test_bits_are_sent_and_no_scores():
    run = tiny(4, uniform(2), masked=BOTH)
    for visit, result in run.results:
        message = result.message()
        assert message.parcel.held is None
        sent = {**visit.received, **message.parcel.values, **message.exact}
        assert {name.partition(".")[0] for name in sent} <= {"vote", "given", "owned"}
        assert all(value.dtype == torch.bool for value in sent.values())
        assert set(message.exact) == (set() if not visit.state[f"owned.{W}"].all() else {"owned." + A, "owned." + W})
    assert all((report.values_up, report.values_down) == (0, 0) for report in run.reports)


def test_a_client_is_sent_the_votes_on_its_own_entries_and_before_it_is_pruned_on_all():
    run = tiny(3, Given([(0, 1), (2,), (2,)]), structured=False, lr=3.0)
    first, second = [visit for visit, _ in run.results if visit.client == 2]
    voted = run.servers[1].shared
    assert voted[f"given.{W}"].any()
    assert_same_bits(dict(first.received), voted)
    own = second.state[f"owned.{W}"]
    assert_same_bits(dict(second.received), {name: value & own for name, value in voted.items()})
    assert not torch.equal(second.received[f"given.{W}"], voted[f"given.{W}"])


def test_a_round_costs_about_a_bit_for_each_entry_and_one_for_whose_it_is():
    """The head of 64 x 10 has 640 entries, 80 bytes as bits: two tensors down, two up, a third on the first visit.

    A message has below 20 bytes of its own and a tensor below 40, for its name and shape.
    """
    data = Population([batch._replace(inputs=batch.inputs.repeat(1, 16)) for batch in federation().batches])
    run = tiny(2, wire=Codec(), module=network(lambda: mlp(shape=(64,))), population=data)
    up, down = ([getattr(report, way) for report in run.reports] for way in ("bytes_up", "bytes_down"))
    assert 5 * 80 < up[0] <= 5 * (20 + 3 * (80 + 40))
    assert 5 * 80 < up[1] <= 5 * (20 + 2 * (80 + 40))
    assert down[0] <= 5 * (20 + 2 * 40), "nothing has been voted on"
    assert 5 * 80 < down[1] <= 5 * (20 + 2 * (80 + 40))


# Newcomers


def test_a_newcomer_trains_and_prunes_its_scores_from_the_votes_and_leaves_the_run_alone():
    """As on a first visit, in one round more that only it takes part in; with full batches nothing is drawn."""
    options = {"budget": steps(4), "adapt": steps(4), "first_budget": steps(2), "lr": 3.0}
    run, twin = tiny(2, Given([(0, 1)]), **options), tiny(3, Given([(0, 1), (0, 1), (3,)]), **options)
    adapted = run.adapted(3)
    assert_same_bits(adapted, twin.results[-1][1].trained)
    assert adapted[f"owned.{W}"].any(0).sum() == 2
    assert 3 not in run.store.clients()
    assert run.shared[f"given.{W}"].any()


def test_finetuning_a_participant_keeps_what_it_owns():
    run, shorter = (tiny(2, adapt=epochs(count, batch=3)) for count in (9, 1))
    for client in range(5):
        adapted = run.adapted(client)
        assert not torch.equal(adapted[f"score.{W}"], shorter.adapted(client)[f"score.{W}"])
        assert torch.equal(adapted[f"owned.{W}"], run.final[client][f"owned.{W}"])
        assert torch.equal(adapted[f"vote.{W}"], adapted[f"score.{W}"] > 0)
    assert run.program.method.judged_by == "personal"


# Pretraining


def test_masks_of_a_pretrained_network_beat_it_and_it_is_the_global_model():
    table = {
        "method": "fedmask",
        "rounds": 4,
        "cohort": 10,
        "method_options": {"budget": {"epochs": 1, "batch": 10}, "structured": False},
        "evaluation": {"every": 10, "splits": ["test"]},
        "pipeline": {"pretrain": {"method": "fedavg", "rounds": 8, "budget": {"epochs": 1, "batch": 10}}},
    }
    result = run_experiment(make_experiment(table))
    pretrained, personal = result.stages
    assert result.metrics["global/test/accuracy"].weighted == pretrained.value
    assert personal.value > pretrained.value + 0.05
    assert result.headline == "personal"

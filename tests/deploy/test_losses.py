"""Nodes that are away, slow, broken or hostile: the run goes on, says who was missing, and nothing is lost twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from plures.core.errors import TooFewClients
from plures.core.wire import Message, Parcel
from plures.deploy import serving
from plures.deploy.in_process import InProcess
from plures.deploy.messages import Reply, opened_order, opened_reply, sealed
from plures.recipes import run_experiment
from plures.wire import decode, encode
from tests.deploy.helpers import FIRST_NODE, Deployment, counted, small

TOLERANT = {"tolerate": {"least_cohort": 1, "deadline": 5.0}, "cohort": "all"}


def lost(result, round: int) -> dict[int, str]:
    return {one["client"]: one["kind"] for one in result.history[round - 1].get("lost", ())}


def when_training(round: int, spoiled: Callable[[bytes], bytes]):
    """Spoils one round's answer, the rest is as it should be."""

    def spoil(order: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        told, _ = opened_order(order)
        reply = handle(order)
        return spoiled(reply) if told.kind == "train" and told.round == round else reply

    return spoil


def with_nan(reply: bytes) -> bytes:
    heading, body = opened_reply(reply)
    message = decode(body, most_bytes=10**8)
    values = {name: torch.full_like(value, torch.nan) for name, value in message.parcel.values.items()}
    return sealed(heading, encode(Message(Parcel(values, message.parcel.held), message.exact)))


def test_a_node_that_sends_nan_is_refused_and_its_visit_never_was(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedper", **TOLERANT), tmp_path)
    deployment.spoil[1] = when_training(2, with_nan)
    result = deployment.serve()
    assert lost(result, 1) == {}
    assert lost(result, 2) == {1: "diverged"}
    assert lost(result, 3) == {}
    assert [counted(result, client) for client in range(3)] == [3, 3, 3]
    # In one process, a client whose upload is NaN in round 2 keeps what it had, and goes on from there.
    alone = lossy_twin(deployment, {(2, 1): "nan"})
    for name, value in alone.server.shared.items():
        assert torch.equal(result.server.shared[name], value), name
    for client in range(3):
        mine, theirs = alone.store.get(client), deployment.kept(client, 3)
        assert mine is not None
        assert theirs is not None
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def lossy_twin(deployment: Deployment, losses: dict[tuple[int, int], str]):
    """The same in one process, with the same clients lost in the same rounds."""
    from plures.core.context import Conduct
    from plures.core.errors import Gone
    from plures.core.losses import Lost, Tolerance
    from plures.recipes import EvaluationPlan, run
    from plures.recipes.build import build

    class Once:
        def is_absent(self, seed: int, round: int, client: int) -> bool:
            return False

        def seconds(self, seed: int, round: int, client: int) -> float:
            return 0.0

        def kills_worker(self, seed: int, round: int, client: int) -> bool:
            return False

        def after(self, visit, result):
            if (visit.round, visit.client) in losses:
                return Lost(visit.client, Gone("x", client="", round=visit.round, phase="", remedy=""))
            return result

    experiment = deployment.experiment
    built = build(experiment)
    conduct = Conduct(tolerance=Tolerance(least_cohort=1), faults=Once())
    return run(
        built.method,
        built.federation,
        built.networks,
        rounds=experiment.rounds,
        seed=experiment.seed,
        engine="sequential",
        evaluation=EvaluationPlan(every=100),
        conduct=conduct,
    )


@pytest.mark.parametrize(
    ("spoiled", "kind"),
    [
        (lambda reply: b"", "misfit"),
        (lambda reply: reply[:-1], "misfit"),
        (lambda reply: sealed(opened_reply(reply).reply.model_copy(update={"client": 0})), "misfit"),
        (lambda reply: sealed(opened_reply(reply).reply), "nothing"),
        (lambda reply: sealed(opened_reply(reply).reply, b"PLUR" + bytes(40)), "misfit"),
    ],
)
def test_what_is_no_reply_is_a_loss(spoiled: Callable[[bytes], bytes], kind: str, tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedalt", **TOLERANT), tmp_path)
    deployment.spoil[2] = when_training(1, spoiled)
    result = deployment.serve()
    assert lost(result, 1) == {2: kind}
    assert not lost(result, 2)


def test_an_error_on_a_node_tells_its_type_and_no_text(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg", **TOLERANT), tmp_path)

    def secret(*given: object) -> None:
        raise ValueError("patient 4711 has no age")

    transport = deployment.transport()
    handler = deployment.handler(0)
    handler.side = secret  # type: ignore[method-assign, assignment]
    letters: list[bytes] = []

    def handle(order: bytes) -> bytes:
        letters.append(handler.handle(order))
        return letters[-1]

    transport.handlers[FIRST_NODE] = handle
    result = deployment.serve(transport)
    assert lost(result, 1) == {0: "failed"}
    assert not any(b"4711" in letter for letter in letters)
    failed = [opened_reply(letter).reply for letter in letters]
    assert any(reply.error == "ValueError" for reply in failed)


def test_a_node_that_goes_away_is_put_aside_and_readmitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plures.deploy.roster.AGAIN_SECONDS", 0.0)
    deployment = Deployment.of(small("fedper", rounds=4, **TOLERANT), tmp_path)
    transport = deployment.transport()
    gone: list[Callable[[bytes], bytes]] = []

    def leaving(order: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        """Client 0 sees that 2 goes in round 2 and comes back, as another node, in round 4."""
        told, _ = opened_order(order)
        if told.kind == "train" and told.round == 2 and not gone:
            gone.append(transport.handlers.pop(FIRST_NODE + 2))
        if told.kind == "evaluate" and told.round == 2 and gone:
            transport.handlers[777] = gone[0]
        return handle(order)

    deployment.spoil[0] = leaving
    result = deployment.serve(transport)
    kinds = [lost(result, round) for round in (1, 2, 3, 4)]
    assert kinds[0] == {}
    assert kinds[1] == {2: "gone"}
    assert kinds[3] == {}
    assert any("put aside" in text for text in deployment.said)
    assert any("is back" in text for text in deployment.said)
    assert counted(result, 2) == 4


def test_a_node_without_its_state_says_so_and_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plures.deploy.roster.AGAIN_SECONDS", 0.0)
    deployment = Deployment.of(small("fedper", rounds=3, **TOLERANT), tmp_path)

    def losing(order: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        told, _ = opened_order(order)
        if told.kind == "train" and told.round == 2:
            for path in (tmp_path / "states" / deployment.folders[1].name / told.run).iterdir():
                path.unlink()
        return handle(order)

    deployment.spoil[1] = losing
    result = deployment.serve()
    assert lost(result, 2) == {1: "failed"}
    assert any("its state is broken" in text for text in deployment.said)
    assert counted(result, 0) == 3
    assert counted(result, 1) == 1


def test_a_late_or_repeated_order_changes_nothing_twice(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedper", cohort="all"), tmp_path)
    result = deployment.serve()
    kept = {client: deployment.kept(client, 3) for client in range(3)}
    handler = deployment.handler(0)
    orders = [order for order, _ in deployment.letters if opened_order(order)[0].kind == "train"]
    mine = [order for order in orders if opened_order(order)[0].client == 0]
    # The last again: the same answer, from the disk.
    again = handler.handle(mine[-1])
    assert again == next(reply for order, reply in deployment.letters if order == mine[-1])
    # One before: too late, and nothing has changed.
    late = opened_reply(handler.handle(mine[0])).reply
    assert late.kind == "failed"
    assert late.where == "order"
    after = deployment.kept(0, counted(result, 0))
    assert after is not None
    assert kept[0] is not None
    assert all(torch.equal(after[name], kept[0][name]) for name in after)


def test_too_few_nodes_end_the_run_which_goes_on_by_resume(tmp_path: Path) -> None:
    experiment = small("fedper", rounds=4, cohort="all", tolerate={"least_cohort": 3, "deadline": 5.0})
    whole = run_experiment(experiment.model_copy(update={"tolerate": None}))
    deployment = Deployment.of(experiment, tmp_path)
    table = deployment.experiment.deploy.model_copy(update={"wait": 0.2})
    deployment.experiment = deployment.experiment.model_copy(update={"deploy": table})
    transport = deployment.transport()

    def leaving(order: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        told, _ = opened_order(order)
        if told.kind == "train" and told.round == 3:
            transport.handlers.pop(FIRST_NODE + 2, None)
        return handle(order)

    deployment.spoil[0] = leaving
    with pytest.raises(TooFewClients, match="2 of 3"):
        deployment.serve(transport)
    deployment.spoil.clear()
    result = deployment.serve(resume=True)
    assert result.server.round == 4
    for name, value in whole.server.shared.items():
        assert torch.equal(result.server.shared[name], value), name
    for client in range(3):
        mine, theirs = whole.store.get(client), deployment.kept(client, 4)
        assert mine is not None
        assert theirs is not None
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_of_more_than_are_wanted_the_quickest_count(tmp_path: Path) -> None:
    tolerate = {"least_cohort": 1, "deadline": 5.0, "over_select": 1.5}
    deployment = Deployment.of(small("fedavg", cohort=2, tolerate=tolerate), tmp_path)
    transport = Slow(deployment.transport().handlers)
    result = deployment.serve(transport)
    for round in (1, 2, 3):
        assert sorted(lost(result, round).values()) == ["surplus"]


def test_those_that_come_together_are_not_more_than_are_wanted(tmp_path: Path) -> None:
    tolerate = {"least_cohort": 1, "deadline": 5.0, "over_select": 1.5}
    result = Deployment.of(small("fedavg", cohort=2, tolerate=tolerate), tmp_path).serve()
    assert [sorted(lost(result, round).values()) for round in (1, 2, 3)] == [["surplus"]] * 3


class Slow(InProcess):
    """Gives one answer at a time."""

    next = 0.0

    def pull(self, tickets):
        if time.monotonic() < self.next:
            return []
        self.next = time.monotonic() + 0.12
        first = [ticket for ticket in self._under_way if ticket in set(tickets)][:1]
        return super().pull(first)


def test_slow_nodes_are_late_and_their_answers_are_thrown_away(tmp_path: Path) -> None:
    tolerate = {"least_cohort": 1, "deadline": 0.5}
    deployment = Deployment.of(small("fedper", cohort="all", tolerate=tolerate), tmp_path)
    transport = Late(deployment.transport().handlers)
    result = deployment.serve(transport)
    assert lost(result, 1) == {2: "late"}
    assert counted(result, 0) == 3


class Late(InProcess):
    """The answer of one node in the first round comes a second late."""

    late: float | None = None

    def pull(self, tickets):
        held = []
        for ticket, letter in self._under_way.items():
            order, _ = opened_order(letter.data)
            if order.kind == "train" and order.round == 1 and letter.node == FIRST_NODE + 2:
                self.late = self.late or time.monotonic()
                if time.monotonic() < self.late + 1.0:
                    held.append(ticket)
        return super().pull([ticket for ticket in tickets if ticket not in held])


def test_the_deployment_of_another_folder_is_not_begun_again(tmp_path: Path) -> None:
    deployment = Deployment.of(small("fedavg"), tmp_path)
    deployment.serve()
    with pytest.raises(serving.RunFolderError, match="has a deployment already"):
        deployment.serve()


def test_replies_are_of_the_kind_that_was_asked_for() -> None:
    with pytest.raises(ValueError, match="kind"):
        Reply(kind="sure", run="0" * 16, start=0, round=0)  # type: ignore[arg-type]

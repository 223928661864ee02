"""The plain engine: one client after another, in order, one at a time."""

from plures.core.client import Result, run_client
from plures.core.roles import Engine
from plures.core.types import PERSONAL, SHARED
from plures.engines.sequential import Sequential
from tests.core.helpers import class_clients, class_program, method, network, phase, same_bits, visit_to

ORDER = (2, 0, 3, 1)
CLIENTS = class_clients((3, 4, 5, 6))


def program():
    return class_program(method(phase((SHARED, PERSONAL)), personal=("3.*",)), network(dropout=0.3))


def visits(of):
    return [visit_to(of, CLIENTS, client) for client in ORDER]


def test_results_come_in_the_order_of_the_visits():
    results = list(Sequential().run(of := program(), visits(of)))
    assert tuple(result.client for result in results) == ORDER
    assert all(isinstance(result, Result) for result in results)


def test_a_result_is_what_the_client_gives_by_itself():
    of = program()
    for visit, result in zip(visits(of), Sequential().run(of, visits(of)), strict=True):
        alone = run_client(of.method, of.binding(visit.client), visit)
        assert same_bits(result.trained, alone.trained)
        assert same_bits(result.upload.values, alone.upload.values)


def test_a_visit_is_made_only_when_its_turn_comes():
    of, asked = program(), []

    def watched():
        for visit in visits(of):
            asked.append(visit.client)
            yield visit

    results = Sequential().run(of, watched())
    assert asked == []
    next(results)
    assert asked == [2]
    next(results)
    assert asked == [2, 0]


def test_any_work_is_mapped_in_order_and_one_at_a_time():
    of, worked = program(), []

    def work(visit):
        worked.append(visit.client)
        return visit.client * 10

    answers = Sequential().map(work, visits(of))
    assert next(answers) == 20
    assert worked == [2]
    assert list(answers) == [0, 30, 10]


def test_no_visits_give_no_results():
    assert list(Sequential().run(program(), [])) == []
    assert list(Sequential().map(lambda visit: visit, [])) == []


def test_it_has_a_name_for_the_records():
    engine: Engine = Sequential()
    assert engine.name == "sequential"

"""Every private thing of Flower that is used is still there, and as it was when it was tried (1.41).

When one of these fails, Flower has changed: try `make test ARGS="-m '' tests/deploy/flower"` by hand, and mend
`plures.deploy.flower` before the pin in pyproject.toml is raised.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import version

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "plures[flower]"')

from plures.deploy.flower import FLOWER

MEND = "Flower has changed: mend plures.deploy.flower, and try it between processes, before this version is used."

SIGNATURES = {
    "flwr.app:Error": ["code", "reason"],
    "flwr.app.message:remove_content_from_message": ["message"],
    "flwr.cli.build:build_fab_from_files": ["files"],
    "flwr.common.serde:message_from_proto": ["message_proto"],
    "flwr.common.serde:message_to_proto": ["message"],
    "flwr.common.serde:fab_to_proto": ["fab"],
    "flwr.common.serde:run_from_proto": ["run_proto"],
    "flwr.supercore.fab:Fab": ["hash_str", "content", "verifications"],
    "flwr.supercore.error:FlowerError.from_json": ["value"],
    "flwr.supercore.inflatable.inflatable_object:get_all_nested_objects": ["obj"],
    "flwr.supercore.inflatable.inflatable_object:get_object_tree": ["obj"],
    "flwr.supercore.inflatable.inflatable_object:no_object_id_recompute": [],
    "flwr.supercore.primitives.asymmetric:public_key_to_bytes": ["public_key"],
}
"""What is called, with the names of its parameters."""
METHODS = {
    "flwr.supernode.fleet_http_client:FleetHttpClient": [
        "RegisterNode",
        "UnregisterNode",
        "ActivateNode",
        "DeactivateNode",
        "SendNodeHeartbeat",
        "PullMessages",
        "PushMessages",
        "PullObject",
        "PushObject",
        "ConfirmMessageReceived",
    ],
    "flwr.supercore.control:ControlHttpClient": ["RegisterNode", "ListNodes", "ListRuns", "StartRun", "StopRun"],
    "flwr.supercore.runtime:RuntimeHttpClient": ["AcquireTask", "PullTaskInput", "PushTaskOutput", "SendTaskHeartbeat"],
}
"""Each takes a request, and nothing else that it must be given."""
FIELDS = {
    "fleet_pb2:ActivateNodeRequest": ["public_key", "heartbeat_interval"],
    "fleet_pb2:ActivateNodeResponse": ["node_id"],
    "fleet_pb2:DeactivateNodeRequest": ["node_id"],
    "fleet_pb2:PullMessagesRequest": ["node"],
    "fleet_pb2:PullMessagesResponse": ["messages_list", "message_object_trees"],
    "fleet_pb2:PushMessagesRequest": [
        "node",
        "messages_list",
        "message_object_trees",
        "clientapp_runtime_list",
    ],
    "fleet_pb2:PushMessagesResponse": ["objects_to_push", "session_id"],
    "fleet_pb2:RegisterNodeFleetRequest": ["public_key"],
    "fleet_pb2:UnregisterNodeFleetRequest": ["node_id"],
    "heartbeat_pb2:SendNodeHeartbeatRequest": ["node", "heartbeat_interval"],
    "control_pb2:RegisterNodeRequest": ["public_key", "name"],
    "control_pb2:StartRunRequest": ["fab"],
    "control_pb2:StartRunResponse": ["run_id"],
    "control_pb2:StopRunRequest": ["run_id"],
    "control_pb2:ListRunsRequest": ["run_id"],
    "control_pb2:ListNodesResponse": ["nodes_info"],
    "runtime_pb2:AcquireTaskRequest": ["agentapp_fab_hashes"],
    "runtime_pb2:AcquireTaskResponse": ["task", "token"],
    "runtime_pb2:PullAppMessagesRequest": ["message_ids"],
    "runtime_pb2:PullAppMessagesResponse": ["messages_list", "message_object_trees"],
    "message_pb2:ConfirmMessageReceivedRequest": ["node", "run_id", "message_object_id"],
    "runtime_pb2:PullTaskInputResponse": ["task_id", "run", "context"],
    "runtime_pb2:PushTaskOutputRequest": ["sub_status", "details"],
    "runtime_pb2:SendTaskHeartbeatResponse": ["success"],
}


def named(where: str):
    """The thing at "module:name"; a sentence where there is none."""
    module, _, path = where.partition(":")
    try:
        found = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{where} is gone ({error}). {MEND}")
    return found


def parameters(thing) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(thing).parameters)


def test_the_version_is_the_one_that_was_tried() -> None:
    assert version("flwr").startswith(f"{FLOWER}."), MEND


@pytest.mark.parametrize("where", SIGNATURES)
def test_what_is_called_takes_what_it_took(where: str) -> None:
    assert list(parameters(named(where))) == SIGNATURES[where], f"{where}: {MEND}"


@pytest.mark.parametrize("where", METHODS)
def test_clients_of_the_apis_have_their_methods(where: str) -> None:
    kind = named(where)
    for method in METHODS[where]:
        assert hasattr(kind, method), f"{where} has no {method}. {MEND}"
        must = [one for one in parameters(getattr(kind, method)).values() if one.default is one.empty]
        assert [one.name for one in must] == ["self", "request"], f"{where}.{method}: {MEND}"
    made = parameters(kind.from_server_address)
    assert list(made)[:4] == ["server_address", "insecure", "root_certificates", "interceptors"], f"{where}: {MEND}"


@pytest.mark.parametrize("where", FIELDS)
def test_messages_have_their_fields(where: str) -> None:
    kind = named(f"flwr.proto.{where}")
    missing = set(FIELDS[where]) - {field.name for field in kind.DESCRIPTOR.fields}
    assert not missing, f"{where} has no {', '.join(sorted(missing))}. {MEND}"


def test_pieces_are_fetched_and_sent_as_before() -> None:
    utils = "flwr.supercore.inflatable.inflatable_utils"
    pulled = parameters(named(f"{utils}:pull_and_inflate_object_from_tree"))
    assert list(pulled)[:3] == ["object_tree", "pull_object_fn", "confirm_object_received_fn"], MEND
    assert {"return_type", "initial_backoff", "backoff_cap", "max_time"} <= set(pulled), MEND
    fetched = parameters(named(f"{utils}:pull_objects"))
    assert {"object_ids", "pull_object_fn", "initial_backoff", "backoff_cap", "max_time"} <= set(fetched), MEND
    pushed = parameters(named(f"{utils}:push_objects"))
    assert list(pushed)[:2] == ["objects", "push_object_fn"], MEND
    assert "object_ids_to_push" in pushed, MEND
    module = "flwr.supercore.inflatable.inflatable_protobuf_utils"
    for name, more in (("pull_object", []), ("confirm_message_received", []), ("push_object", ["session_id"])):
        made = parameters(named(f"{module}:make_{name}_fn_protobuf"))
        assert list(made)[1:] == ["node", "run_id", *more], f"make_{name}_fn_protobuf: {MEND}"


def test_the_grid_is_what_the_session_changes() -> None:
    grid = named("flwr.superlink.grid:HttpGrid")
    assert list(parameters(grid)) == ["runtime_api_address", "insecure", "root_certificates", "token"], MEND
    made = grid("127.0.0.1:1", True, None, token="x")
    for attribute in ("should_giveup", "on_backoff", "max_time", "max_tries"):
        assert hasattr(made._retry_invoker, attribute), f"the grid's retries have no {attribute}. {MEND}"
    assert isinstance(inspect.getattr_static(grid, "_runtime_client"), property), MEND
    assert all(hasattr(grid, name) for name in ("set_run", "close", "push_messages", "pull_messages", "get_node_ids"))
    # `arriving.py` does the same for each reply by itself.
    source = inspect.getsource(grid.pull_messages)
    for call in ("PullMessages(", "pull_objects(", "ConfirmMessageReceived(", "inflate_object_from_contents("):
        assert call in source, f"pull_messages has no {call} any more. {MEND}"
    identity = named("flwr.supercore.task_identity:TaskIdentity")
    assert all(hasattr(type(identity), name) or hasattr(identity, name) for name in ("task_id", "run_id", "node_id"))


def test_numbers_are_the_same() -> None:
    codes, errors = named("flwr.common.constant:ErrorCode"), named("flwr.supercore.error:ApiErrorCode")
    assert (codes.CLIENT_APP_RAISED_EXCEPTION, codes.MESSAGE_UNAVAILABLE, codes.REPLY_MESSAGE_UNAVAILABLE) == (2, 3, 4)
    assert (codes.NODE_UNAVAILABLE, codes.CLIENT_APP_CRASHED) == (5, 8), MEND
    assert (errors.PUBLIC_KEY_ALREADY_IN_USE, errors.FLEET_NODE_ACTIVATION_FAILED) == (23, 2004), MEND
    assert named("flwr.common.constant:HEARTBEAT_MIN_INTERVAL") <= 10, f"nodes beat each 10 s. {MEND}"
    assert named("flwr.common.constant:HEARTBEAT_PATIENCE") == 2, MEND
    assert named("flwr.supercore.constant:OBJECT_PUSH_SESSION_TTL_SECONDS") <= 200, MEND
    statuses = named("flwr.common.constant:SubStatus")
    assert (statuses.COMPLETED, statuses.FAILED) == ("completed", "failed"), MEND


def test_messages_and_arrays_are_made_as_before() -> None:
    assert {"dst_node_id", "message_type", "ttl", "reply_to"} <= set(parameters(named("flwr.app:Message"))), MEND
    assert {"dtype", "shape", "stype", "data"} <= set(parameters(named("flwr.app:Array"))), MEND


def test_letters_come_back_as_they_were() -> None:
    import os

    from plures.deploy.flower.packing import SMALL, packed, unpacked

    for size in (0, 1, 1000, SMALL, SMALL + 1):
        data = os.urandom(size)
        assert unpacked(packed(data)) == data
    assert unpacked(named("flwr.app:RecordDict")()) == b""

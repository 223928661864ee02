"""The formats of an exported model: weights, a torch program, an ONNX program."""

from __future__ import annotations

import importlib
import json
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor

from plures.core.errors import InvalidConfig, InvalidModel, RunFolderError
from plures.parts.gated import GatedNetwork
from plures.recipes.deployed import ClientModel
from plures.recipes.folder import portable

Format = Literal["safetensors", "torch", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[Format, str] = {"safetensors": ".safetensors", "torch": ".pt2", "onnx": ".onnx"}
FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""What torch may raise as it follows a network."""
NEAR = 1e-4
"""Relative to the largest output: a program that differs by more is not the model."""
FACTS = "plures.json"
"""The file inside of a torch program that says what the model is."""

Run = Callable[[Tensor], Tensor]


def format_of(asked: str | None, path: Path | None) -> Format:
    """As asked for, else as the file is called, else safetensors."""
    named = {suffix: name for name, suffix in SUFFIXES.items()}
    found = asked or (named.get(path.suffix) if path is not None else None) or "safetensors"
    if found not in FORMATS:
        raise InvalidConfig(f"There is no format '{found}'. Give one of {', '.join(FORMATS)}.")
    if path is not None and path.suffix in named and named[path.suffix] != found:
        raise InvalidConfig(f"{path} is called as {named[path.suffix]}, but the format is {found}: choose one of them.")
    return found


def encoded(model: ClientModel, example: Tensor, format: Format) -> tuple[bytes, Run]:
    """The bytes of a file, and what is in it as a function, to be compared with the model."""
    if format == "safetensors":
        return weights_of(model), model
    program = program_of(model, example, format)
    return torch_bytes(program, model.facts) if format == "torch" else onnx_bytes(program, model.facts)


def weights_of(model: ClientModel) -> bytes:
    """The network's tensors by its own names; what else there is to know, as JSON."""
    network = model.network
    values = dict(network.named_parameters()) | dict(network.named_buffers())
    return save(portable(values), metadata=texts_of(model.facts))


def texts_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as files hold them: each as JSON."""
    return {name: json.dumps(value) for name, value in facts.items()}


def program_of(model: ClientModel, example: Tensor, format: Format) -> torch.export.ExportedProgram:
    """The model as operators of torch alone, for any number of examples."""
    if any(isinstance(layer, GatedNetwork) for layer in model.modules()):
        raise InvalidModel(
            f"A gated network (pfedgate) chooses its blocks for the inputs at hand, by an operator of Plures that no "
            f"{format} program has. Use the format safetensors."
        )
    batch = torch.export.Dim("batch")
    try:
        with quietly():
            program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},), strict=False)
    except FAILURES as error:
        raise not_exported(model, format, error) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names files of this machine
        if getattr(node.target, "namespace", "") == "plures":
            raise InvalidModel(
                f"{type(model.network).__name__} uses an operator of Plures, {node.target}, which no {format} program "
                "has. Use the format safetensors."
            )
    return program


def not_exported(model: ClientModel, format: Format, error: Exception) -> InvalidModel:
    name = type(model.network).__name__
    return InvalidModel(f"{name} cannot be written as {format}: {reason_of(error)} Use the format safetensors.")


def reason_of(error: BaseException) -> str:
    """The first line of what went wrong in the first place, as a sentence."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"{line[:300].rstrip('.')}."


def torch_bytes(program: torch.export.ExportedProgram, facts: Mapping[str, Any]) -> tuple[bytes, Run]:
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = Path(folder) / "model.pt2"
        torch.export.save(program, path, extra_files={FACTS: json.dumps(facts)})
        content = path.read_bytes()
        loaded = torch.export.load(path).module()
    return content, loaded


def onnx_bytes(program: torch.export.ExportedProgram, facts: Mapping[str, Any]) -> tuple[bytes, Run]:
    check_onnx()
    try:
        with quietly():
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=["inputs"], output_names=["outputs"]
            )
    except FAILURES as error:
        raise InvalidModel(
            f"The network cannot be written as onnx: {reason_of(error)} Use the format torch."
        ) from error
    assert made is not None
    proto = made.model_proto
    for value in (*proto.graph.input, *proto.graph.output):
        first = value.type.tensor_type.shape.dim[0]
        if first.dim_param:
            first.dim_param = "batch"
    for name, text in texts_of(facts).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = f"plures.{name}", text
    content: bytes = proto.SerializeToString()
    return content, as_run(content)


def check_onnx() -> None:
    try:
        for package in ("onnx", "onnxscript"):
            importlib.import_module(package)
    except ImportError as error:
        raise InvalidConfig(
            f'The format onnx needs the package {error.name}: pip install "plures[onnx]". Without it, use safetensors '
            "or torch."
        ) from error


def as_run(content: bytes) -> Run:
    """The program in onnxruntime or, where that is not installed, in onnx's own slow reference."""
    try:
        runtime = importlib.import_module("onnxruntime")
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except ImportError:
        session = importlib.import_module("onnx.reference").ReferenceEvaluator(content)
    return lambda inputs: torch.from_numpy(session.run(None, {"inputs": inputs.numpy()})[0])


@contextmanager
def quietly() -> Iterator[None]:
    """Without what torch tells its own developers while it exports; nothing of it is about the network."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec.*")
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", message=".*_flat_weights.*")  # of torch's LSTM
            yield
    finally:
        logger.setLevel(before)


def write(path: Path, content: bytes) -> None:
    """A whole file or none."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunFolderError(f"Cannot write {path}: {error.strerror}. Choose another place with --out.") from error


def farthest(model: ClientModel, run: Run, inputs: Tensor) -> float:
    """By how much what was written differs from the model at most: on all of these inputs, and on one alone."""
    with torch.inference_mode():
        worst = max(apart(model(some), run(some)) for some in (inputs, inputs[:1]))
    if worst > NEAR:
        raise InvalidModel(
            f"What was written differs from the network by {worst:.2g} of its largest output: nothing is kept. Use the "
            "format safetensors."
        )
    return worst


def apart(wanted: Tensor, found: Tensor) -> float:
    """The largest difference, as a share of the largest output if that is above 1; infinite where one is no number."""
    if wanted.shape != found.shape:
        return math.inf
    gaps = (wanted - found).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    gaps = torch.where((wanted == found) | (wanted.isnan() & found.isnan()), 0.0, gaps)
    largest = wanted.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()
    return float(gaps.max() / largest.clamp_min(1.0))

"""Programs as files: written by PyTorch's exporters, and loaded as by a client."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from foretaste.errors import MissingExtraError
from foretaste.export.program import OUTPUTS, ListProgram
from foretaste.host import send_no_telemetry

Format = Literal["onnx", "torch"]

FILES: dict[Format, str] = {"onnx": "model.onnx", "torch": "model.pt2"}
"""The file name of a program, by format."""

# An ONNX file is a protocol buffer, which has at most 2 GiB.
MOST_BYTES_INSIDE = 1_900_000_000
"""Most bytes of weights inside an ONNX file."""

Inputs = Mapping[str, NDArray[np.int64]]
Call = Callable[[Inputs], tuple[NDArray[np.int64], NDArray[np.float32]]]
"""A loaded program: a function from inputs by name to item indexes and scores."""


def check_format(name: Format) -> None:
    """Raise MissingExtraError if a package of the format is not installed."""
    if name == "torch":
        return
    send_no_telemetry()
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"{error.name} is for ONNX and is not installed; "
            "pip install onnx onnxruntime onnxscript"
        ) from error


def write(program: ListProgram, name: Format, directory: Path) -> None:
    """Write a program; ONNX weights above 1.9 GB go into a second file."""
    path = directory / FILES[name]
    axes = {"history": torch.export.Dim("entries"), "users": torch.export.Dim("users")}
    shapes = tuple({0: axes.get(one, axes["users"])} for one in program.inputs)
    with torch.no_grad(), _quiet():
        if name == "torch":
            exported = torch.export.export(program, program.example(), dynamic_shapes=shapes)
            exported.example_inputs = None  # they would be saved as a pickle
            for node in exported.graph.nodes:
                node.meta.pop("stack_trace", None)
            torch.export.save(exported, path)
            return
        made = torch.onnx.export(
            program,
            program.example(),
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=program.inputs,
            output_names=OUTPUTS,
            verbose=False,
        )
        assert made is not None
        for each in made.model.graph.all_nodes():
            each.metadata_props.clear()  # they have paths of this machine
        made.save(path, external_data=program.num_bytes() > MOST_BYTES_INSIDE)


def load(name: Format, directory: Path) -> Call:
    """Load a program of `write` on the CPU."""
    path = directory / FILES[name]
    if name == "torch":
        with _quiet():
            module = torch.export.load(path).module()

        def run_torch(inputs: Inputs) -> Any:
            with torch.no_grad():
                return tuple(out.numpy() for out in module(*map(torch.from_numpy, inputs.values())))

        return run_torch
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: tuple(session.run(OUTPUTS, dict(inputs)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence logs and warnings of PyTorch's exporters, which are for their developers."""
    names = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

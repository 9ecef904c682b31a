"""Write the minimal models of a place into a folder that can be attached to an issue of a converter."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.files import make_marked_folder, storage_errors
from paritygate.pipelines.diagnose.minimal import MinimalPair
from paritygate.text import one_line
from paritygate.validate.divergence.result import Located, Minimal

if TYPE_CHECKING:
    import onnx

_COMMAND = "convert-and-validate compare reference.onnx candidate.onnx --samples inputs.npz"
_SCRIPT = """\
import numpy as np, onnxruntime as ort
inputs = dict(np.load("inputs.npz"))
y = [ort.InferenceSession(f"{name}.onnx").run(["y"], inputs)[0] for name in ("reference", "candidate")]
print(np.abs(y[0].astype(float) - y[1].astype(float)).max())"""


def folder_for_minimal(folder: Path) -> Path:
    """Make the folder, without the files of an earlier call, and return its whole path.

    Raises:
        StorageError: It cannot be written.
        UsageError: It holds files of others.
    """
    make_marked_folder(folder)
    with storage_errors(folder):
        for path in _paths(folder):
            path.unlink(missing_ok=True)
    return folder.resolve()


def _paths(folder: Path) -> tuple[Path, Path, Path, Path]:
    return folder / "reference.onnx", folder / "candidate.onnx", folder / "inputs.npz", folder / "README.md"


def write_minimal(
    folder: Path, pair: MinimalPair, minimal: Minimal, place: Located, candidate: onnx.ModelProto
) -> None:
    """Write both models, their inputs, and a README.md that shows the fault; `candidate` is the whole candidate.

    Raises:
        StorageError: The folder cannot be written.
    """
    import numpy as np

    reference_file, candidate_file, inputs_file, readme = _paths(folder)
    with storage_errors(folder):
        reference_file.write_bytes(pair.reference.SerializeToString())
        candidate_file.write_bytes(pair.candidate.SerializeToString())
        np.savez(inputs_file, allow_pickle=False, **pair.inputs)
        readme.write_text("\n".join(_readme(minimal, place, candidate)) + "\n", encoding="utf-8")


def _readme(minimal: Minimal, place: Located, candidate: onnx.ModelProto) -> Iterator[str]:
    error = "infinite" if minimal.error is None else f"{minimal.error:.2g}"
    yield "# Two models that should compute the same"
    yield ""
    yield f"`candidate.onnx` differs from `reference.onnx`: {one_line(place.what)}."
    yield f"The largest relative error on `inputs.npz` is {error}."
    yield ""
    for name, nodes, operators in (
        ("candidate", place.candidate_nodes, place.op_types),
        ("reference", place.reference_nodes, place.reference_op_types),
    ):
        pairs = (f"`{one_line(node)}` ({operator})" for node, operator in zip(nodes, operators, strict=True))
        yield f"- Nodes of the {name}: {', '.join(pairs) or 'none'}"
    yield ""
    yield from ("This command shows it:", "", "```shell", _COMMAND, "```", "", "So does ONNX Runtime alone:", "")
    yield from ("```python", _SCRIPT, "```", "")
    yield from _content(minimal)
    yield from _versions(candidate)


def _content(minimal: Minimal) -> Iterator[str]:
    inputs = "values of the whole models, computed from real rows" if minimal.has_real_inputs else "drawn by a seed"
    yield from ("## What is in the files", "", f"- `inputs.npz`: {inputs}.")
    for constant in minimal.constants:
        values = "drawn by a seed, no weights of the models" if constant.is_drawn else "of the models"
        yield f"- `{constant.name}` ({constant.dtype}{list(constant.shape)}): {values}."
    yield from ("- Nothing else of the models, except the names of nodes and their attributes.", "")


def _versions(candidate: onnx.ModelProto) -> Iterator[str]:
    producer = f"{candidate.producer_name} {candidate.producer_version}".strip() or "not named in the file"
    opsets = ", ".join(f"{item.domain or 'ai.onnx'} {item.version}" for item in candidate.opset_import)
    yield from ("## Versions", "", f"- Producer of the candidate: {one_line(producer)}; opset: {opsets}")
    for package in ("paritygate", "onnx", "onnxruntime", "numpy"):
        yield f"- {package} {importlib.metadata.version(package)}"
    yield f"- Python {platform.python_version()}, {platform.system()} {platform.machine()}"

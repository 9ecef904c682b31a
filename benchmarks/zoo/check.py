"""Holds converted files against the model they were made of, on inputs drawn here: nothing of paritygate is used.

`python benchmarks/zoo/check.py CASE FORMAT-PRECISION=FOLDER ...` prints a JSON object: for each file, how far it was
off, on the scale that is `max(1, the standard deviation of the output)`, and whether it is right: `right` within the
limit of its precision, `wrong` beyond ten times that or where names, shapes or dtypes differ, `unclear` between.
The same is said, as `given`, of the rows that paritygate was given: a file that is off there is refused rightly.
`--declare` prints inputs and outputs of the model as a spec declares them, `--samples FILE` writes paritygate's rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from case import Arrays, Case, batches
from cases import CASES
from source import answer, declared

LIMITS = {"fp32": 1e-4, "fp16": 1e-2}
# Other rows, other numbers of rows and other sizes than those which paritygate is given.
SEED = 77
ROWS = (1, 3, 8, 5)
SAMPLE_SEED = 1
SAMPLE_BATCHES = 7
SAMPLE_ROWS = 16

Run = Callable[[Arrays], dict[str, np.ndarray]]


def open_onnx(path: Path, device: str = "cpu") -> Run:
    """Open an ONNX file; on a GPU, without TF32."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    if device == "cuda":
        # It brings no libraries of CUDA.
        onnxruntime.preload_dlls()
    on_cuda = [("CUDAExecutionProvider", {"use_tf32": "0"})] if device == "cuda" else []
    session = onnxruntime.InferenceSession(str(path), providers=[*on_cuda, "CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    taken = {value.name for value in session.get_inputs()}
    return lambda arrays: dict(
        zip(names, session.run(None, {k: v for k, v in arrays.items() if k in taken}), strict=True)
    )


def open_openvino(path: Path) -> Run:
    """Open an OpenVINO model, in FP32."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    taken = {name for port in compiled.inputs for name in port.get_names()}

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        answered = compiled({k: v for k, v in arrays.items() if k in taken})
        return {name: answered[port] for port in compiled.outputs for name in port.get_names()}

    return run


def open_torchscript(path: Path, outputs: list[str], device: str) -> Run:
    """Open a TorchScript file, which knows no names of outputs; on a GPU, without TF32."""
    import torch

    torch.backends.cudnn.allow_tf32 = False
    module = torch.jit.load(str(path), map_location=device)

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            answered = module(*[torch.from_numpy(array).to(device) for array in arrays.values()])
        if isinstance(answered, dict):
            return {name: value.cpu().numpy() for name, value in answered.items()}
        values = answered if isinstance(answered, tuple | list) else [answered]
        return dict(zip(outputs, (value.cpu().numpy() for value in values), strict=True))

    return run


def open_savedmodel(path: Path) -> Run:
    """Open the serving signature of a SavedModel."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]
    _keep.append(loaded)
    return lambda arrays: {
        name: value.numpy() for name, value in signature(**{k: tf.constant(v) for k, v in arrays.items()}).items()
    }


def open_tflite(path: Path) -> Run:
    """Open a TFLite file by its signature."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    runner = interpreter.get_signature_runner()
    _keep.append(interpreter)
    return lambda arrays: dict(runner(**arrays))


_keep: list[Any] = []


def main_file(folder: Path) -> tuple[str, Path]:
    """Return what opens the files of a folder, and the file to open."""
    for kind, pattern in (("onnx", "*.onnx"), ("openvino", "*.xml"), ("tflite", "*.tflite"), ("torchscript", "*.pt")):
        if found := sorted(folder.glob(pattern)):
            return kind, found[0]
    (found_file,) = folder.rglob("saved_model.pb")
    return "savedmodel", found_file.parent


def open_folder(folder: Path, outputs: list[str], device: str) -> Run:
    """Open what a folder holds; ONNX and TorchScript on the device, the others on the CPU."""
    kind, path = main_file(folder)
    if kind == "torchscript":
        return open_torchscript(path, outputs, device)
    if kind == "onnx":
        return open_onnx(path, device)
    return {"openvino": open_openvino, "tflite": open_tflite, "savedmodel": open_savedmodel}[kind](path)


def own_inputs(case: Case) -> Iterator[Arrays]:
    """Draw the rows that files are held against the model on."""
    for seed, rows in enumerate(ROWS):
        yield from batches(case, seed=SEED + seed, number=3, rows=rows)


def check(case: Case, files: dict[str, Path], device: str = "cpu") -> dict[str, Any]:
    """Run every file beside the model, on the rows drawn here and on those that paritygate was given."""
    model = case.build()
    drawn = {"own": list(own_inputs(case)), "given": list(samples(case))}
    expected = {rows: [answer(case, model, arrays) for arrays in inputs] for rows, inputs in drawn.items()}
    found: dict[str, Any] = {}
    for variant, folder in files.items():
        limit = LIMITS[variant.rpartition("-")[2]]
        try:
            run = open_folder(folder, list(expected["own"][0]), device)
            own, given = (_held(run, drawn[rows], expected[rows], limit) for rows in ("own", "given"))
        except Exception:  # noqa: BLE001 - whatever a runtime raises is what this file comes to
            found[variant] = {"state": "wrong", "why": traceback.format_exc(limit=1)[-400:]}
            continue
        found[variant] = {**own, "given": given["state"]}
    return found


def _held(run: Run, inputs: list[Arrays], expected: list[dict[str, np.ndarray]], limit: float) -> dict[str, Any]:
    worst, where = 0.0, ""
    for arrays, answers in zip(inputs, expected, strict=True):
        off, name = distance(run(arrays), answers, scales(expected))
        if not off <= worst:
            worst, where = off, name
    state = "right" if worst <= limit else "unclear" if worst <= 10 * limit else "wrong"
    return {"state": state, "off": float(f"{worst:.3g}"), "output": where}


def scales(expected: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Return the scale of each output."""
    return {
        name: max(1.0, float(np.std(np.concatenate([answers[name].ravel() for answers in expected]))))
        for name in expected[0]
    }


def distance(
    actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], scale: dict[str, float]
) -> tuple[float, str]:
    """Return the largest difference, infinite where something is missing or of another shape, and its output."""
    worst, where = 0.0, ""
    for name, wanted in expected.items():
        got = actual.get(name)
        if got is None or got.shape != wanted.shape or got.dtype != wanted.dtype:
            return float("inf"), f"{name}: {None if got is None else (got.shape, str(got.dtype))} for {wanted.shape}"
        if not wanted.size:
            continue
        if wanted.dtype.kind == "f":
            off = float(np.nan_to_num(np.abs(got - wanted) / scale[name], nan=np.inf).max())
        else:
            off = 0.0 if np.array_equal(got, wanted) else float("inf")
        if off > worst:
            worst, where = off, name
    return worst, where


def samples(case: Case) -> Iterator[Arrays]:
    """Draw the rows that paritygate is given: of a model that takes one picture at a time, as many calls."""
    alone = all(not drawn.shape.startswith("batch") for drawn in case.inputs.values())
    number, rows = (SAMPLE_BATCHES * SAMPLE_ROWS, 1) if alone else (SAMPLE_BATCHES, SAMPLE_ROWS)
    return batches(case, seed=SAMPLE_SEED, number=number, rows=rows)


def write_samples(case: Case, path: Path) -> None:
    """Write the rows that paritygate is given."""
    arrays = {
        f"b{index:03d}/{name}": array for index, batch in enumerate(samples(case)) for name, array in batch.items()
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]  # keys are free in a mapping


def main() -> None:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("files", nargs="*", metavar="VARIANT=FOLDER")
    parser.add_argument("--declare", action="store_true")
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    case = CASES[arguments.case]
    if arguments.samples:
        write_samples(case, arguments.samples)
    if arguments.declare:
        result: Any = declared(case, case.build())
    else:
        files = {name: Path(path) for name, _, path in (item.partition("=") for item in arguments.files)}
        result = check(case, files, arguments.device)
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

"""What INT8 costs and gains in ONNX Runtime on this CPU, by what quantized the model: speed, size and difference.

Run it with `python benchmarks/int8_tools.py --out benchmarks/results/int8_tools.json`; about five minutes on two
cores. Every row is a ratio to the same model in FP32, timed in turns in one process, so that a drift of the machine
hits both; the smallest of all rounds counts. Calibration rows and compared rows have none in common. `all operators`
and `dynamic` on a model with convolutions are what paritygate does not do, measured to say why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import quantization

from paritygate.backends import version_of
from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.convert.onnx.onnx_to_int8 import prepared_model
from paritygate.fixtures.face_resnet50 import calibration_images, images
from paritygate.fixtures.sts import calibration_rows, evaluation_pairs
from paritygate.fixtures.sts.architecture import SIMILAR_ABOVE
from paritygate.models.loading import load_model
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.spec.loading import load_spec
from paritygate.precision import Precision

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A packaged spec, with rows to calibrate on and rows to compare."""

    spec: str
    calibration: Callable[[], Iterator[Any]]
    compared: Callable[[], Iterator[Any]]
    decide: Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table; differences are of the logits, times are FP32's divided by INT8's."""

    model: str
    quantized_by: str
    size_ratio: float
    max_abs_diff: float
    mean_abs_diff: float
    reference_spread: float
    mismatches: int
    rows: int
    speed_up_batch_1: float
    speed_up_batch_8: float


MODELS = (
    Model(spec="face-resnet50", calibration=calibration_images, compared=images, decide=lambda y: y.argmax(axis=1)),
    Model(spec="klue-sts", calibration=calibration_rows, compared=evaluation_pairs, decide=lambda y: y > SIMILAR_ABOVE),
)
# By what the table calls it: tool, method and activations of the spec.
OURS = {
    "onnxruntime, int8": ("onnxruntime", "minmax", "int8"),
    "onnxruntime, uint8": ("onnxruntime", "minmax", "uint8"),
    "nncf": ("nncf", "minmax", "int8"),
}


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=[model.spec for model in MODELS])
    arguments = parser.parse_args()
    rows = []
    for model in MODELS:
        if model.spec in arguments.models:
            with tempfile.TemporaryDirectory() as folder:
                for row in measure(model, Path(folder), arguments.rounds):
                    print(json.dumps(asdict(row)), flush=True)
                    rows.append(asdict(row))
    result = {
        "benchmark": "int8_tools",
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "onnxruntime": onnxruntime.__version__,
        "nncf": version_of("nncf"),
        "rounds": arguments.rounds,
        "rows": rows,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(model: Model, folder: Path, rounds: int) -> Iterator[Row]:
    """Yield a row for everything that quantizes the model."""
    source = to_onnx(model.spec, folder / "fp32")
    calibration = [dict(batch.inputs) for batch in model.calibration()]
    compared = [dict(batch.inputs) for batch in model.compared()]
    reference = session_of(source)
    expected = np.concatenate([reference.run(None, batch)[0] for batch in compared])
    for name, path in quantized(source, folder, calibration):
        session = session_of(path)
        actual = np.concatenate([session.run(None, batch)[0] for batch in compared])
        difference = np.abs(actual.astype(np.float64) - expected)
        speed = [speed_up(reference, session, first_rows(compared[0], count), rounds) for count in (1, 8)]
        yield Row(
            model=model.spec,
            quantized_by=name,
            size_ratio=round(path.stat().st_size / source.stat().st_size, 3),
            max_abs_diff=round(float(difference.max()), 5),
            mean_abs_diff=round(float(difference.mean()), 5),
            reference_spread=round(float(expected.std()), 3),
            mismatches=int((model.decide(actual) != model.decide(expected)).sum()),
            rows=len(expected),
            speed_up_batch_1=round(speed[0], 3),
            speed_up_batch_8=round(speed[1], 3),
        )


def to_onnx(spec: str, folder: Path) -> Path:
    """Return the packaged model as an ONNX file in FP32."""
    resolved = load_spec(spec)
    loaded = load_model(resolved.source)
    job = ConversionJob(source=loaded.source, model=loaded.model, folder=folder, signature=resolved.signature)
    return folder / convert_and_check(job, "onnx").main


def quantized(source: Path, folder: Path, calibration: list[Arrays]) -> Iterator[tuple[str, Path]]:
    """Yield the name of each way to quantize, and the file that it made."""
    for name, (tool, method, activations) in OURS.items():
        out = folder / name
        job = ConversionJob(
            source=ModelRef(text=source.name, folder=source.parent, kind=SourceKind.ONNX),
            folder=out,
            precision=Precision.INT8,
            calibration=Calibration(read=lambda: iter(calibration), tool=tool, method=method, activations=activations),
        )
        yield name, out / convert_and_check(job, "onnx").main
    # Shapes that the exporter noted keep these tools from starting.
    plain = folder / "plain.onnx"
    onnx.save(prepared_model(source), str(plain))
    everything = folder / "everything.onnx"
    quantization.quantize_static(
        plain,
        everything,
        reader_of(calibration),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        extra_options={"ActivationSymmetric": True},
    )
    yield "onnxruntime, int8, all operators", everything
    dynamic = folder / "dynamic.onnx"
    quantization.quantize_dynamic(plain, dynamic, per_channel=True)
    yield "onnxruntime, dynamic", dynamic


def reader_of(batches: list[Arrays]) -> Any:  # noqa: ANN401 - a CalibrationDataReader
    """Return the batches as ONNX Runtime's tool reads them."""

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # ONNX Runtime has no types
        left = iter(batches)

        def get_next(self) -> Arrays | None:
            return next(self.left, None)

    return Reader()


def session_of(path: Path) -> Any:  # noqa: ANN401 - an InferenceSession
    """Return the model loaded on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads of one session that wait in a loop would take the processor from the other's.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def first_rows(batch: Mapping[str, NDArray[Any]], count: int) -> Arrays:
    """Return the first rows of a batch."""
    return {name: array[:count] for name, array in batch.items()}


def speed_up(reference: Any, candidate: Any, inputs: Arrays, rounds: int) -> float:  # noqa: ANN401 - sessions
    """Return the shortest time of the reference divided by that of the candidate, called in turns."""
    shortest = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, session in enumerate((reference, candidate)):
            started = time.perf_counter()
            session.run(None, inputs)
            shortest[index] = min(shortest[index], time.perf_counter() - started)
    return shortest[0] / shortest[1]


if __name__ == "__main__":
    main()

"""Run a PyTorch model on a GPU in one precision and write its outputs: what `gpu_parity.py` starts, a process each.

TF32, FP16 and BF16 of PyTorch are not formats of paritygate. They show what the hardware's arithmetic comes to without
any converter between: FP16 and BF16 with all weights and operators cast, as in the rewritten ONNX, TF32 by PyTorch's
own switches.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paritygate.importing import load_object
from paritygate.machine import check_environment

PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# TF32 and BF16 are arithmetic of Ampere and later: compute capability 8.0.
AMPERE = (8, 0)
NEEDS_AMPERE = frozenset({"tf32", "bf16"})


def main() -> None:
    """Write the outputs, and print what ran as JSON: `{"lacks": REASON}` where this machine cannot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("device", choices=["cuda", "cpu"])
    parser.add_argument("model", help="module:callable, PyTorch")
    parser.add_argument("samples", help="module:callable")
    parser.add_argument("output", help="the name of the model's only output")
    parser.add_argument("out", type=Path, help="the .npz file to write")
    arguments = parser.parse_args()
    reason = lacks(arguments.precision, arguments.device)
    if reason:
        print(json.dumps({"lacks": reason}))
        return
    check_environment()
    set_tf32(is_allowed=arguments.precision == "tf32")
    answers = outputs_of(arguments.model, arguments.samples, PRECISIONS[arguments.precision], arguments.device)
    np.savez(arguments.out, **{arguments.output: answers})
    print(json.dumps(facts(arguments.precision, arguments.device)))


def lacks(precision: str, device: str) -> str:
    """Return why this machine cannot run the precision; empty if it can."""
    if device == "cpu":
        return "TF32 is arithmetic of GPUs" if precision == "tf32" else ""
    if not torch.cuda.is_available():
        return f"this build of torch ({torch.__version__}) does not run on CUDA here"
    capability = torch.cuda.get_device_capability()
    if precision in NEEDS_AMPERE and capability < AMPERE:
        return f"{precision} needs compute capability 8.0, and this GPU has {capability[0]}.{capability[1]}"
    return ""


def set_tf32(*, is_allowed: bool) -> None:
    """Let matrix products and convolutions in float32 be computed in TF32, or forbid it."""
    torch.set_float32_matmul_precision("high" if is_allowed else "highest")
    torch.backends.cudnn.allow_tf32 = is_allowed


def outputs_of(model: str, samples: str, dtype: torch.dtype, device: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the answers to all samples, float32, the rows of all batches one after the other."""
    module = load_object(model)().eval().to(device=device, dtype=dtype)
    found = []
    with torch.inference_mode():
        for batch in load_object(samples)():
            tensors = [torch.from_numpy(np.array(array)).to(device) for array in batch.inputs.values()]
            tensors = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
            found.append(module(*tensors).to(device="cpu", dtype=torch.float32).numpy())
    return np.concatenate(found)


def facts(precision: str, device: str) -> dict[str, Any]:
    """Return what ran, read back from PyTorch."""
    is_tf32 = torch.get_float32_matmul_precision() != "highest" or torch.backends.cudnn.allow_tf32
    return {
        "runtime": "torch",
        "version": str(torch.__version__),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if device == "cuda" else None,
        "precision": precision,
        "tf32": is_tf32,
        # PyTorch's default lets products of FP16 be summed up in FP16 in part.
        "fp16_reduction": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    }


if __name__ == "__main__":
    main()

"""What this machine is, as evidence records it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paritygate import machine
from paritygate.errors import BackendError, UsageError
from paritygate.machine import check_environment, device_name, gpu_of_machine, machine_facts


def test_the_cpu_is_named_cpu() -> None:
    assert device_name("cpu") == "cpu"


@pytest.mark.gpu
def test_the_gpu_is_named_by_its_compute_capability() -> None:
    answer = subprocess.run(
        ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    assert device_name("cuda") == "cuda:sm" + answer.stdout.splitlines()[0].replace(".", "")


@pytest.mark.skipif(gpu_of_machine() is not None, reason="says what happens where there is no GPU")
def test_cuda_without_a_gpu_is_a_backend_error() -> None:
    with pytest.raises(BackendError, match="the CUDA driver shows no GPU to this process"):
        device_name("cuda")


def test_another_device_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"device 'tpu' is not known \(allowed: cpu, cuda\)"):
        device_name("tpu")


def test_facts_are_json_and_name_python_and_the_versions() -> None:
    facts = json.loads(json.dumps(machine_facts()))
    assert facts["python"] == platform.python_version()
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["cpu"]["model"]


def test_flags_that_decide_on_kernels_are_read_from_cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = "processor\t: {}\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 avx512_bf16 sse\n"
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("\n".join(block.format(number) for number in range(2)), encoding="utf-8")
    monkeypatch.setattr(machine, "_CPUINFO", cpuinfo)
    assert machine_facts()["cpu"] == {"model": "Some CPU @ 2 GHz", "flags": ["avx2", "avx512_bf16"]}


def test_arm_features_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nFeatures  : fp asimdhp sve i8mm bf16\n", encoding="utf-8")
    monkeypatch.setattr(machine, "_CPUINFO", cpuinfo)
    found = machine_facts()["cpu"]
    assert found["flags"] == ["asimdhp", "bf16", "i8mm", "sve"]
    assert found["model"]


def test_a_machine_without_cpuinfo_has_no_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "absent")
    assert machine_facts()["cpu"]["flags"] == []


def test_the_driver_s_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = tmp_path / "version"
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    version.write_text(text, encoding="utf-8")
    monkeypatch.setattr(machine, "_NVIDIA_DRIVER", version)
    assert machine._nvidia_driver() == "550.54.15"


@pytest.mark.parametrize(
    ("name", "value"),
    [("NVIDIA_TF32_OVERRIDE", "0"), ("ONEDNN_DEFAULT_FPMATH_MODE", "strict"), ("TF_SET_ONEDNN_FPMATH_MODE", "")],
)
def test_an_environment_that_lowers_nothing_is_fine(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    check_environment()


@pytest.mark.parametrize(
    ("name", "value"), [("TF_SET_ONEDNN_FPMATH_MODE", "BF16"), ("DNNL_DEFAULT_FPMATH_MODE", "ANY")]
)
def test_an_environment_that_lowers_float32_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BackendError, match=f"{name}={value}"):
        check_environment()


def test_facts_import_no_framework() -> None:
    code = (
        "import sys; from paritygate.machine import machine_facts; machine_facts(); "
        "print([name for name in ('torch', 'tensorflow', 'onnx', 'onnxruntime', 'numpy') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"

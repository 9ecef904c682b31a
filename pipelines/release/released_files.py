"""Read single files of a release, each compared with the manifest first."""

from __future__ import annotations

from paritygate.artifact import ARTIFACT_FILE
from paritygate.codec import from_data
from paritygate.errors import ArtifactIntegrityError
from paritygate.files import digest_of_bytes, json_of
from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.release.repository.manifest import read_file
from paritygate.pipelines.release.repository.store import repository_of_release
from paritygate.signature import Signature

_BENCHMARK_FILE = "benchmark.json"


def released_benchmark(released: ReleaseDetails) -> BenchmarkResult | None:
    """Return the benchmark in a release; None where it has none.

    Raises:
        ArtifactIntegrityError: It is not the released one.
    """
    if _BENCHMARK_FILE not in released.manifest["files"]:
        return None
    return BenchmarkResult.read(json_of(_checked(released, _BENCHMARK_FILE).decode()))


def released_signature(released: ReleaseDetails, variant: str) -> Signature:
    """Return the inputs and outputs of a converted variant.

    Raises:
        ArtifactIntegrityError: Its record is not the released one.
    """
    record = json_of(_checked(released, f"{variant}/{ARTIFACT_FILE}").decode())
    return from_data(Signature, record["signature"])


def _checked(released: ReleaseDetails, name: str) -> bytes:
    content = read_file(released.folder, name)
    if content is None or digest_of_bytes(content) != released.manifest["files"].get(name):
        msg = f"{released.folder / name} is corrupt: digest mismatch"
        verify = command_on(repository_of_release(released.folder), "verify", released.model, str(released.version))
        raise ArtifactIntegrityError(msg, hint=f"see all differences: {verify}")
    return content

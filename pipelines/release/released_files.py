"""Read single files of a release, each compared with the manifest first."""

from __future__ import annotations

from pathlib import Path

from paritygate.errors import ArtifactIntegrityError
from paritygate.files import digest_of_file, read_json
from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.inspect import ReleaseDetails
from paritygate.pipelines.release.repository.store import repository_of_release

_BENCHMARK_FILE = "benchmark.json"


def checked_file(released: ReleaseDetails, name: str) -> Path:
    """Return the path of a file of the release, after comparing it with the manifest.

    Raises:
        ArtifactIntegrityError: It is not the released one.
    """
    path = released.folder / name
    if not path.is_file() or path.is_symlink() or digest_of_file(path) != released.manifest["files"].get(name):
        msg = f"{path} is corrupt: digest mismatch"
        verify = command_on(repository_of_release(released.folder), "verify", released.model, str(released.version))
        raise ArtifactIntegrityError(msg, hint=f"see what else: {verify}")
    return path


def released_benchmark(released: ReleaseDetails) -> BenchmarkResult | None:
    """Return the benchmark in a release; None where it has none.

    Raises:
        ArtifactIntegrityError: It is not the released one.
    """
    if _BENCHMARK_FILE not in released.manifest["files"]:
        return None
    return BenchmarkResult.read(read_json(checked_file(released, _BENCHMARK_FILE)))

"""Networks and servers that fail: one clear error in bounded time, nothing half released, and the next one works."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.repository import servers
from tests.pipelines.repository.proxy import FAULTS, Proxy, proxy

from paritygate.errors import ExitCode, StorageError
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate
from paritygate.pipelines.release.repository.inspect import list_models, verify_release
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.stores import client as clients
from paritygate.pipelines.release.stores import objects
from paritygate.roots import Address

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"


@pytest.fixture
def between(moto: str) -> Iterator[Proxy]:
    with proxy(moto) as made:
        yield made


def _assert_valid(root: Address) -> tuple[int, ...]:
    """Assert that the alias is at the newest of the releases, which is intact as the one before; return all."""
    (model,) = list_models(root)
    assert all(verify_release(root, _MODEL, version).is_intact for version in model.versions[-2:])
    assert model.aliases == {"prod": model.versions[-1]}
    return model.versions


def _try(act: Callable[[], Any]) -> StorageError | None:
    """Return the error that something ends with, if it does."""
    try:
        act()
    except StorageError as err:
        error = err
    else:
        return None
    assert error.exit_code is ExitCode.NOT_MEASURED
    assert str(error).strip()
    assert error.hint
    return error


def _as_in_a_new_process() -> None:
    objects.object_store.cache_clear()


def _places(requests: list[str]) -> list[int]:
    """Return the number of the last request of each kind."""
    kinds: dict[str, int] = {}
    for number, request in enumerate(requests):
        method, path = request.split(" ", 1)
        kind = re.sub(r"[0-9a-f]{16,}|\d+", "N", path.partition("?")[0])
        kinds[f"{method} {kind.rpartition('/store/')[1]}{kind.rpartition('/')[2]} {'?' in path}"] = number
    return sorted(kinds.values())


@pytest.mark.parametrize("fault", FAULTS)
def test_one_request_that_fails_is_repeated_or_one_clear_error(
    fault: str, between: Proxy, s3: Callable[[str], Address], make_candidate: Make
) -> None:
    root = s3(between.endpoint)
    promote(root, make_candidate())
    between.requests.clear()
    _as_in_a_new_process()
    promote(root, make_candidate())
    places = _places(between.requests)
    ended = []

    for place in places:
        before = _assert_valid(root)
        _as_in_a_new_process()
        between.requests.clear()
        between.fault = lambda _, number, place=place: fault if number == place else ""
        error = _try(lambda: promote(root, make_candidate()))
        between.fault = lambda _, __: ""
        ended.append(error)
        after = _assert_valid(root)
        assert len(after) - len(before) in ({1} if error is None else {0, 1})
    sys.stdout.write(f"{fault}: {len(places)} requests, {sum(error is None for error in ended)} repeated\n")
    assert promote(root, make_candidate()).version > max(after)
    assert _assert_valid(root)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_is_fit_even_if_any_request_of_the_probe_fails_once(
    fault: str, between: Proxy, s3: Callable[[str], Address]
) -> None:
    client = clients.bucket_client(s3(between.endpoint))
    assert clients.probe(client, "probe") == ""
    total = len(between.requests)

    for place in range(total):
        between.requests.clear()
        between.fault = lambda _, number, place=place: fault if number == place else ""
        assert clients.probe(client, "probe") == ""
        assert len(between.requests) <= 2 * total

    between.fault = lambda _, __: ""
    assert not any(client.list("probe"))


@pytest.mark.parametrize("fault", [*FAULTS, "slow-2"])
def test_a_server_that_fails_from_any_request_on_is_one_clear_error_in_bounded_time(
    fault: str, between: Proxy, s3: Callable[[str], Address], make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = s3(between.endpoint)
    promote(root, make_candidate())
    between.requests.clear()
    _as_in_a_new_process()
    promote(root, make_candidate())
    total, longest = len(between.requests), 0.0

    for place in (0, total // 4, total // 2, 3 * total // 4):
        before = _assert_valid(root)
        _as_in_a_new_process()
        between.requests.clear()
        between.fault = lambda _, number, place=place: fault if number >= place else ""
        started = time.monotonic()
        # Only here: a busy machine may need longer for what has no fault.
        with monkeypatch.context() as patch:
            patch.setattr(clients, "_RETRY_S", 1)
            patch.setattr(clients, "_REQUEST_S", 1)
            error = _try(lambda: promote(root, make_candidate()))
        longest = max(longest, time.monotonic() - started)
        between.fault = lambda _, __: ""
        assert error is not None
        _as_in_a_new_process()
        assert _assert_valid(root) == before
    sys.stdout.write(f"{fault}: at most {longest:.1f} s with retries of 1 s\n")
    assert promote(root, make_candidate()).version > max(before)
    assert _assert_valid(root)


@pytest.mark.parametrize("is_for_good", [False, True])
def test_an_upload_in_parts_that_is_cut_is_repeated_or_releases_nothing(
    *,
    is_for_good: bool,
    between: Proxy,
    s3: Callable[[str], Address],
    make_candidate: Make,
    make_variant: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "_RETRY_S", 2)
    root = s3(between.endpoint)
    promote(root, make_candidate())
    big = make_candidate(variants=(make_variant("onnx-fp16", {"model.onnx": os.urandom(12 << 20)}),))
    parts: list[int] = []

    def fault(request: str, number: int) -> str:
        if "partNumber=2" not in request:
            return ""
        parts.append(number)
        return "cut request" if is_for_good or len(parts) == 1 else ""

    between.fault = fault

    error = _try(lambda: promote(root, big))

    between.fault = lambda _, __: ""
    assert (error is not None) is is_for_good
    assert len(parts) > 1
    assert _assert_valid(root) == ((1,) if is_for_good else (1, 2))
    # What was uploaded is withdrawn, so its number is free.
    assert promote(root, make_candidate()).version == (2 if is_for_good else 3)


def test_a_slow_server_is_waited_for(between: Proxy, s3: Callable[[str], Address], make_candidate: Make) -> None:
    root = s3(between.endpoint)
    between.fault = lambda _, __: "slow-0.2"

    promote(root, make_candidate())

    assert _assert_valid(root) == (1,)


def test_a_real_server_that_ignores_conditions_is_refused_before_the_first_write(
    tmp_path: Path, s3: Callable[[str], Address], make_candidate: Make
) -> None:
    with servers.rclone(tmp_path) as endpoint, proxy(endpoint) as between:
        root = s3(between.endpoint)
        started = time.monotonic()

        with pytest.raises(StorageError, match=r"cannot keep releases: it .* is ignored"):
            promote(root, make_candidate())

        sys.stdout.write(f"refused after {time.monotonic() - started:.2f} s, {len(between.requests)} requests\n")
        probes = [request for request in between.requests if not request.startswith("GET ")]
        assert all("/staging/probe-" in request or "delete" in request for request in probes)
        assert len(between.requests) < 10
        left = [path for path in (tmp_path / servers.BUCKET).rglob("*") if path.is_file() and path.name != ".ready"]
        assert left == []


# The probe, the number, an upload, the reading back, the log that is read again, and the record.
_STEPS = (
    "PUT .*/staging/probe",
    "PUT .*manifest",
    "PUT .*model.onnx",
    "GET .*model.onnx",
    "GET .*prefix=",
    "PUT .*/log/",
)


@pytest.mark.parametrize("is_back", [True, False])
def test_a_server_that_is_killed_in_the_middle_of_a_promotion_loses_nothing(
    *,
    is_back: bool,
    tmp_path: Path,
    s3: Callable[[str], Address],
    make_candidate: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "_RETRY_S", 120 if is_back else 1)
    with servers.seaweedfs(tmp_path) as server, proxy(server.endpoint) as between:
        root = s3(between.endpoint)
        promote(root, make_candidate())
        ended = []
        for step in _STEPS:
            before = _assert_valid(root)
            _as_in_a_new_process()
            kills: list[str] = []

            def kill(request: str, _: int, step: str = step, kills: list[str] = kills) -> str:
                if not kills and re.match(step, request):
                    kills.append(request)
                    server.kill()
                    if is_back:
                        server.start()
                return ""

            between.fault = kill
            error = _try(lambda: promote(root, make_candidate()))
            between.fault = lambda _, __: ""
            assert kills
            ended.append(error)
            sys.stdout.write(f"{step}: {error or 'went on'}\n")
            if not is_back:
                assert error is not None
                server.start()
            server.wait()
            _as_in_a_new_process()
            after = _assert_valid(root)
            assert len(after) - len(before) in ({1} if error is None else {0, 1})
        assert promote(root, make_candidate()).version > max(after)

"""Run `tune`: compute expected outputs, search on the server, and write the best settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from paritygate.codec import to_data
from paritygate.errors import MeasurementError
from paritygate.machine import machine_facts
from paritygate.pipelines.live.questions import questions_of, recorded
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.release.released_rules import rules_of
from paritygate.pipelines.release.views.to_serve import release_to_serve
from paritygate.pipelines.serving.server_kind import kind_of
from paritygate.pipelines.serving.triton.backends import served_signature
from paritygate.pipelines.spec.names import check_name
from paritygate.pipelines.tuning.chart import chart_of, svg_of
from paritygate.pipelines.tuning.control import ModelControl
from paritygate.pipelines.tuning.request import TuneRequest, TuneResult
from paritygate.pipelines.tuning.search import Point
from paritygate.pipelines.tuning.session import address_of, open_session
from paritygate.pipelines.tuning.space import space_of
from paritygate.pipelines.tuning.trial import SettingsTrial
from paritygate.pipelines.tuning.view import PresentView, read_present_view
from paritygate.precision import Variant


def tune(
    request: TuneRequest,
    *,
    progress: Progress = lambda *_: None,
    watch: Callable[[Point], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> TuneResult:
    """Search the settings of a running server, and write the best into the view.

    Afterwards the server has its own settings or the written ones, also after an error or a signal. `progress` is
    called while the released file runs on the samples, `watch` with each measurement. `warn` gets messages that another
    error would hide.

    Raises:
        UsageError: There is no such release or view, a value is not allowed, or the address is malformed.
        MeasurementError: The server does not answer, goes away, or reached the limit of requests.
        BackendError: It answers with an error.
        ParitygateError: The released file fails on the samples.
    """
    released = release_to_serve(
        request.repository, request.model, request.which, kind_of("triton"), variant=request.variant
    )
    name = check_name("model", request.name or request.model)
    endpoint = address_of(request, name, released.details.version)
    view = read_present_view(request, released, name)
    served = served_signature(released.artifact)
    space = space_of(request, view)
    rules = rules_of(released.details, Variant.parse(released.variant))
    samples = replace(request.samples, batch_size=max(request.rows, 1))
    limit_s = request.time_limit_s
    with recorded(released.artifact, rules, samples, time_limit_s=limit_s, progress=progress) as recording:
        questions = questions_of(recording, samples, served, rules, rows=request.rows)
    begin, started = time.monotonic(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    session = open_session(request, endpoint, questions, served, view.settings)
    server, before = session.meter.server, session.settings
    result = TuneResult(
        model=request.model,
        version=released.details.version,
        variant=released.variant,
        digest=released.artifact.digest,
        signature=served,
        name=name,
        url=endpoint.host,
        server=server.server,
        server_version=server.version,
        transport=server.transport,
        limit_ms=request.limit_s * 1000,
        percentile=request.percentile,
        rows=request.rows,
        verdict="inconclusive",
        before=before,
        not_chosen=session.why_not,
        machine=machine_facts(),
        measured_at=started,
        notes=() if before == view.settings else (f"the server had {before}, but the view has {view.settings}",),
    )
    with session.giving_back(warn):
        result = SettingsTrial(request=request, space=space, session=session, watch=watch).run(result)
    result = replace(result, seconds=time.monotonic() - begin)
    return _written(result, view, session.control) if result.verdict == "pass" else result


def _written(result: TuneResult, view: PresentView, control: ModelControl | None) -> TuneResult:
    """Return the result once the view has the best settings, and the server had to read it."""
    settings = result.settings
    if settings is None:
        raise MeasurementError("a search that passed has no settings")
    is_written = settings != view.settings
    updated = replace(result, is_written=is_written)
    plot = chart_of(updated)
    evidence = {"schema_version": 1, **to_data(updated)}
    view.write(
        settings,
        (json.dumps(evidence, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(),
        b"" if plot is None else svg_of(plot).encode(),
    )
    has = control.settings if control is not None else settings
    if control is not None and is_written:
        has = control.reload()
    return replace(updated, is_loaded=has == settings)

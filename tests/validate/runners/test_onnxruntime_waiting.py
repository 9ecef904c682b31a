"""Threads of ONNX Runtime wait as OMP_WAIT_POLICY says, and the answers stay the same."""

from __future__ import annotations

import pytest

from paritygate.validate.runners.onnxruntime_waiting import set_waiting


@pytest.mark.parametrize(
    ("policy", "is_passive"), [(None, False), ("active", False), ("passive", True), ("PASSIVE", True)]
)
def test_threads_wait_in_calls_as_the_environment_says(
    policy: str | None, monkeypatch: pytest.MonkeyPatch, *, is_passive: bool
) -> None:
    import onnxruntime

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    options = onnxruntime.SessionOptions()

    set_waiting(options)

    assert options.get_session_config_entry("session.force_spinning_stop") == "1"
    for name in ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning"):
        if is_passive:
            assert options.get_session_config_entry(name) == "0"
        else:
            with pytest.raises(RuntimeError):
                options.get_session_config_entry(name)

"""Run the same batches without graph optimisations; compare with the reference and with the deployed outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.errors import BackendError

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Run the candidate before the runtime rewrites its graph."""
    if plan.why_not_plain:
        return plan.why_not_plain
    try:
        plain = plan.open_plain()
    except BackendError as err:
        # The deployed model is optimised, so a failure to load otherwise is not a fault of it.
        return f"it does not load without graph optimisations: {err}"
    for batch in session.asked:
        session.judge(batch, session.answer(batch, plain), is_same_build=False)
    return ""

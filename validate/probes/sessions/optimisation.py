"""The same batches with the runtime's graph optimisations off, against the reference and against them as deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.errors import BackendError

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Ask the candidate as it is before the runtime rewrites it."""
    if plan.why_not_plain:
        return plan.why_not_plain
    try:
        plain = plan.open_plain()
    except BackendError as err:
        # What is deployed is optimised: that it does not load otherwise is no fault of it.
        return f"it does not load without graph optimisations: {err}"
    for asked in session.asked:
        session.judge(asked, session.answer(asked, plain), is_same_build=False)
    return ""

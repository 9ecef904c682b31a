"""Run the same batches in a fresh process, as its first calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.errors import BackendError

if TYPE_CHECKING:
    from paritygate.validate.probes.sessions.session import SessionPlan, SessionProbe

# The smallest batch runs first there; of equal ones, the first.
_FIRST_CALL = "in the first call in a new process"
_LATER_CALL = "in a new process, after other calls"


def ask(session: SessionProbe, plan: SessionPlan) -> str:
    """Load the candidate in another process and run the batches there."""
    if plan.why_not_afresh:
        return plan.why_not_afresh
    if not session.asked:
        return "no batch ran that could run again"
    try:
        answers = plan.answer_afresh(session.asked)
    except BackendError as err:
        # It ran here, so a failure in another process is a finding of this probe.
        session.fail_all(str(err))
        return ""
    first = min(session.asked, key=lambda batch: batch.stored.record.rows)
    for batch, answer in zip(session.asked, answers, strict=True):
        is_first = batch is first
        session.judge(batch, answer, when=_FIRST_CALL if is_first else _LATER_CALL)
    return ""

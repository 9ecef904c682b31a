"""Run a spec as tests with `pytest --parity SPEC`, and compare two models in a test with the fixture `parity`.

pytest imports this plugin in every project of an environment that has paritygate. So it imports paritygate only when
the option or the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from paritygate.api import Comparison
    from paritygate.pipelines.report.ci.cases import Case

_MARKER = "parity"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("paritygate").addoption(
        "--parity",
        action="append",
        default=[],
        metavar="SPEC",
        help="Run a paritygate spec, a .yaml file or the name of a packaged one, as tests: one for each variant and "
        "check, with the marker parity. Nothing is released. May be repeated.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker.

    Raises:
        pytest.UsageError: Several processes are to run the same spec.
    """
    config.addinivalue_line("markers", f"{_MARKER}: a check of a variant, by --parity SPEC")
    if not config.getoption("parity"):
        return
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        msg = "--parity runs a spec in one process, and -n would run it in each: give -n 0, or leave -n out"
        raise pytest.UsageError(msg)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the specs, and add their checks to the tests before -k and -m select among them."""
    for spec in config.getoption("parity"):
        items += session.genitems(ParitySpec.from_parent(session, name=spec, nodeid=spec))


class ParitySpec(pytest.Collector):
    """A spec, which runs when tests are collected, because only then its checks are known."""

    def collect(self) -> Iterator[ParityVariant]:
        """Run the spec without releasing anything, and yield its variants."""
        import paritygate
        from paritygate.pipelines.report.ci.cases import suites_of_run

        outcome = paritygate.run(self.name, promote=False, benchmark=False)
        for suite in suites_of_run(outcome.report(), exit_code=outcome.exit_code, not_released=outcome.not_released):
            yield ParityVariant.from_parent(self, name=suite.name, cases=suite.cases)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401 - as in pytest
        """Return an error as the command prints it."""
        del style
        from paritygate.errors import ParitygateError
        from paritygate.text import hint_lines

        error = excinfo.value
        if not isinstance(error, ParitygateError):
            return super().repr_failure(excinfo)
        return "\n".join((f"error: {error}", *hint_lines(**error.next_step)))


class ParityVariant(pytest.Collector):
    """A variant of a spec."""

    def __init__(self, *, cases: tuple[Case, ...], **given: Any) -> None:  # noqa: ANN401 - as pytest calls it
        super().__init__(**given)
        self._cases = cases

    def collect(self) -> Iterator[ParityItem]:
        """Yield its checks."""
        return (ParityItem.from_parent(self, name=case.name, case=case) for case in self._cases)


class ParityItem(pytest.Item):
    """A check of a variant, with its outcome."""

    def __init__(self, *, case: Case, **given: Any) -> None:  # noqa: ANN401 - as pytest calls it
        super().__init__(**given)
        self._case = case
        self.add_marker(_MARKER)

    def runtest(self) -> None:
        """Report the outcome, with the message of the gate."""
        case = self._case
        if case.output:
            self.add_report_section("call", "parity", case.output)
        words = "\n".join(filter(None, (case.message, case.details)))
        if case.status == "skipped":
            pytest.skip(case.message)
        if case.status == "error":
            pytest.fail(f"not measured: {words}", pytrace=False)
        if case.status == "failed":
            pytest.fail(words, pytrace=False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return its place, for the head of a failure."""
        # pytest would replace the dots in a name that ends the id.
        return self.path, None, self.nodeid.replace("::", " ")


@pytest.fixture(scope="session")
def parity() -> Callable[..., Comparison]:
    """Return `paritygate.compare`, which fails the test unless the verdict is `pass`, and else returns the result."""

    def compare(reference: object, candidate: object, **given: Any) -> Comparison:  # noqa: ANN401 - as of compare
        # A failure shows the line of the test, and our message.
        __tracebackhide__ = True
        import paritygate

        result = paritygate.compare(reference, candidate, **given)
        result.assert_passed()
        return result

    return compare

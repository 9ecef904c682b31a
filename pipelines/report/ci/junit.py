"""JUnit XML, which every CI system shows as tests: one testsuite per variant, one testcase per check.

Elements and their order follow the schema that Jenkins publishes (junit-10.xsd). The reason of a failure, error or skip
is in the attribute `message`, and in full in the text below it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from paritygate.pipelines.report.ci.cases import Case, CaseStatus, Suite
from paritygate.text import printable

_ELEMENTS = {CaseStatus.FAILED: "failure", CaseStatus.ERROR: "error", CaseStatus.SKIPPED: "skipped"}
_PACKAGE = "paritygate"
# XML allows neither of these; `printable` escapes other characters.
_NOT_IN_XML = re.compile("[\ufffe\uffff]")


def junit_xml(suites: Iterable[Suite]) -> str:
    """Return the suites as one XML document, without a final line break."""
    root = ET.Element("testsuites", name=_PACKAGE)
    for suite in suites:
        _add_suite(root, suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def _add_suite(root: ET.Element, suite: Suite) -> None:
    element = ET.SubElement(
        root,
        "testsuite",
        name=_safe(f"{suite.model} {suite.name}"),
        tests=str(len(suite.cases)),
        failures=str(suite.count(CaseStatus.FAILED)),
        errors=str(suite.count(CaseStatus.ERROR)),
        skipped=str(suite.count(CaseStatus.SKIPPED)),
        time=f"{suite.seconds:.3f}",
    )
    if suite.properties:
        properties = ET.SubElement(element, "properties")
        for name, value in suite.properties.items():
            ET.SubElement(properties, "property", name=name, value=_safe(value))
    for case in suite.cases:
        _add_case(element, suite, case)


def _add_case(parent: ET.Element, suite: Suite, case: Case) -> None:
    # Systems group by the part before the last dot, so names must not contain dots.
    group = ".".join(part.replace(".", "_") for part in (_PACKAGE, suite.model, suite.name))
    element = ET.SubElement(parent, "testcase", classname=_safe(group), name=_safe(case.name))
    kind = _ELEMENTS.get(case.status)
    if kind is not None:
        outcome = ET.SubElement(element, kind, message=_safe(case.message))
        if case.status is not CaseStatus.SKIPPED:
            outcome.set("type", suite.verdict)
            outcome.text = _safe("\n".join(filter(None, (case.message, case.details))))
    if case.output:
        ET.SubElement(element, "system-out").text = _safe(case.output)


def _safe(text: str) -> str:
    """Return text for an XML document, with every hidden character escaped."""
    return _NOT_IN_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(text))

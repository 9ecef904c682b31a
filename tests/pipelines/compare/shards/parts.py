"""One comparison in several numbers of parts, and without parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk


def without_times(data: Any) -> Any:  # noqa: ANN401 - JSON data
    """Return the data of a result without what may differ from call to call."""
    if isinstance(data, dict):
        kept = {name: item for name, item in data.items() if name != "machine" and not name.endswith("seconds")}
        return {name: without_times(item) for name, item in kept.items()}
    return [without_times(item) for item in data] if isinstance(data, list) else data


def compared_in_parts(desk: Desk, numbers: tuple[int, ...], candidate: str, *options: str) -> dict[int, Called]:
    """Compare a candidate with the recording `reference`, and return the results by the number of parts, 0 for none."""
    call = ("compare", "reference", candidate, *options)
    found = {0: desk.json(*call)}
    for of in numbers:
        parts = [f"{of}-{number}.json" for number in range(1, of + 1)]
        for number, part in enumerate(parts, start=1):
            called = desk.call(*call, "--shard", f"{number}/{of}", "--out", part)
            assert called.code == 0, called
        # In another order than that of the rows.
        found[of] = desk.json("merge", *parts[::2], *parts[1::2])
    return found


def assert_one_verdict(found: dict[int, Called], code: int) -> None:
    """Check that all parts have one result to the last bit, with the checks of the plain comparison."""
    texts = {json.dumps(without_times(called.data)) for of, called in found.items() if of}
    assert {of: called.code for of, called in found.items()} == dict.fromkeys(found, code), found[0]
    assert len(texts) == 1
    checks = [
        sorted(
            (check["name"], str(check["output"]), check["status"], str(check["rows"]))
            for check in called.data["checks"]
        )
        for called in found.values()
    ]
    assert checks == checks[:1] * len(checks)

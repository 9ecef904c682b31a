"""Read the figures of released variants from evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paritygate.signature import is_float_dtype

_DIFFERENCES = ("max_abs_diff", "min_abs_diff", "mean_abs_diff", "std_abs_diff")


def figures_of(variants: Iterable[Mapping[str, Any]], evidence: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield, for each variant, output and machine, how often answers differ, and by how much."""
    documents = [item for item in (evidence, *evidence.get("others", ())) if "variants" in item]
    entries = [entry for item in documents for entry in (*item["variants"], *item.get("emulated", ()))]
    for variant in variants:
        released = variant["evidence"] or {}
        kinds = {item["kind"] for item in (released, *released.get("also", ())) if item}
        for entry in entries:
            is_of_this = (entry["variant"], entry.get("artifact")) == (variant["name"], variant["digest"])
            if is_of_this and entry["evidence"] in kinds:
                yield from _of_entry(entry)


def _of_entry(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    # Evidence of schema 1 holds the measurements itself; later evidence holds the result.
    result = entry.get("result") or entry
    for output, numbers in result.get("outputs", {}).items():
        # Outputs with decisions count those, and outputs compared exactly count values.
        counted = result.get("decisions", {}).get(output, {})
        exact = None if is_float_dtype(numbers["dtype"]) else numbers.get("mismatches")
        yield {
            "variant": entry["variant"],
            "output": output,
            "rows": result.get("rows"),
            "mismatches": counted.get("mismatches", exact),
            "mismatch_rate_upper_95": counted.get("mismatch_rate_upper_95"),
            **{name: numbers.get(name) for name in _DIFFERENCES},
            "device": result.get("candidate", entry).get("device"),
            "evidence": entry["evidence"],
            "verdict": entry["verdict"],
        }

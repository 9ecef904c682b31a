"""How each target of a run stands for a release: what was found about it on each device that the release is for.

Evidence of several devices may lie side by side. What was found on a device counts for that device; where nothing was
validated at all, an emulated row may stand in, if the spec accepts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paritygate.engine.gpu_fit import why_not_built_for
from paritygate.formats import CPU_FORMATS, ENGINE_FORMATS
from paritygate.pipelines.compare.result import NOT_AVAILABLE, NOT_RUN_HERE
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.workspace import RunFolder, required_variants
from paritygate.precision import Variant

_CPU = "cpu"
_EMULATED = "emulated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Eligibility:
    """One target.

    Attributes:
        entry: The entry of the evidence that it is shown by.
        why_not: Why it may not be released, in words; empty if it may.
        devices: Those devices of the release that its format can run on.
        entries: The entry that counts for each of them; where it may not be released, for those that have one.
        has_run: Whether the file itself was compared on any device.
    """

    entry: EvidenceEntry
    why_not: str
    devices: tuple[str, ...]
    entries: Mapping[str, EvidenceEntry] = field(default_factory=dict)
    has_run: bool = True


def can_run_on(variant: str, device: str) -> bool:
    """Return whether a variant is of a format that runs on the device at all."""
    return Variant.parse(variant).format not in (ENGINE_FORMATS if device == _CPU else CPU_FORMATS)


def eligibilities_of(
    evidence: Evidence,
    *,
    devices: tuple[str, ...],
    accept: Mapping[str, str],
    engines: Mapping[str, Mapping[str, Any]],
) -> Iterable[Eligibility]:
    """Yield how each target stands, in the order of the spec.

    Args:
        evidence: The evidence of the run; of other devices only what is about the files that are there.
        devices: Where the release will run.
        accept: Kind of evidence accepted in place of `verified` for a device that is absent, by variant.
        engines: What is known of the making of each engine, by variant.
    """
    documents = evidence.by_device()
    for entry in evidence.variants:
        name = entry.variant
        of_variant = {device: found for device, item in documents.items() if (found := item.entry(name)) is not None}
        target = _Target(home=evidence.device, entry=entry, by_device=of_variant, documents=tuple(documents))
        eligibility = target.verified(devices)
        emulated = _emulated_entry(documents.values(), name, accept) if eligibility.why_not else None
        yield eligibility if emulated is None else target.emulated(eligibility, emulated, engines.get(name))


def _emulated_entry(documents: Iterable[Evidence], name: str, accept: Mapping[str, str]) -> EvidenceEntry | None:
    """Return the emulated row that is accepted in place of evidence, if it passed; the newest one decides."""
    if accept.get(name) != _EMULATED:
        return None
    rows = (document.emulated_entry(name) for document in documents)
    newest = next((row for row in rows if row is not None and row.evidence == _EMULATED), None)
    return newest if newest is not None and newest.verdict == "pass" else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """What was found about one target.

    Attributes:
        home: The device of the last validation.
        entry: What was found there.
        by_device: What was found on each device that has evidence about this file.
        documents: The devices that anything was validated on.
    """

    home: str
    entry: EvidenceEntry
    by_device: Mapping[str, EvidenceEntry]
    documents: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.entry.variant

    def verified(self, devices: tuple[str, ...]) -> Eligibility:
        """Return how it stands by what ran."""
        wanted = tuple(device for device in devices if can_run_on(self.name, device))
        has_run = any(entry.evidence == "verified" for entry in self.by_device.values())
        if not wanted:
            why = f"does not run on {', '.join(devices)}"
            return Eligibility(entry=self.entry, why_not=why, devices=wanted, has_run=has_run)
        found = {device: self._verified_on(device) for device in wanted}
        counting = {device: entry for device, entry in found.items() if entry is not None}
        why_not = next((self._why_not(device) for device in wanted if device not in counting), "")
        entry = next(iter(counting.values()), self.entry) if not why_not else self.entry
        return Eligibility(entry=entry, why_not=why_not, devices=wanted, entries=counting, has_run=has_run)

    def emulated(self, eligibility: Eligibility, row: EvidenceEntry, facts: Mapping[str, Any] | None) -> Eligibility:
        """Return how it stands where an emulated row may stand for devices that are absent, and for nothing else.

        What ran elsewhere has to have passed there; what was not run has to be of a kind that no runtime there runs. A
        file that failed, crashed or hung is not saved by what would be on another device.
        """
        absent = [device for device in eligibility.devices if device not in eligibility.entries]
        if not absent or any(device in self.documents for device in absent) or not self._is_unharmed():
            return eligibility
        if Variant.parse(self.name).format in ENGINE_FORMATS:
            unfit = next(filter(None, (why_not_built_for(device, facts or {}) for device in absent)), "")
            if unfit:
                return Eligibility(
                    entry=self.entry, why_not=unfit, devices=eligibility.devices, has_run=eligibility.has_run
                )
        return Eligibility(
            entry=row,
            why_not="",
            devices=eligibility.devices,
            entries={device: eligibility.entries.get(device, row) for device in eligibility.devices},
            has_run=eligibility.has_run,
        )

    def _verified_on(self, device: str) -> EvidenceEntry | None:
        """Return the entry of a pass on the device; None if there is none.

        What only has a CPU runs there when a GPU is asked for: where nothing was validated on the CPU, that counts.
        """
        entries = [self.by_device.get(device)] if device in self.documents else list(self.by_device.values())
        return next((entry for entry in entries if entry and _passed(entry) and entry.device == device), None)

    def _is_unharmed(self) -> bool:
        elsewhere = (
            entry for device, entry in self.by_device.items() if device != self.home and can_run_on(self.name, device)
        )
        return all(_passed(entry) or _is_built(entry) for entry in (self.entry, *elsewhere))

    def _why_not(self, device: str) -> str:
        """Return why what was found does not let it be released for the device, in words."""
        is_absent = device not in self.documents
        entry = self.entry if is_absent else self.by_device.get(device)
        on = "" if device == self.home or is_absent else f" on {device}"
        if entry is None:
            return f"what was compared on {device} is another file, or nothing"
        if _is_built(entry):
            return f"was built, and never ran on {device}" if is_absent else f"does not run on {device}"
        if entry.verdict != "pass":
            return f"{entry.verdict}{on}"
        if entry.evidence != "verified":
            return f"passed{on}, and is {entry.evidence}, not verified"
        return f"passed on {self._passed_on() or entry.device} only"

    def _passed_on(self) -> str:
        passed = dict.fromkeys(str(entry.device) for entry in self.by_device.values() if _passed(entry))
        return " and ".join(passed)


def _passed(entry: EvidenceEntry) -> bool:
    return entry.evidence == "verified" and entry.verdict == "pass"


def _is_built(entry: EvidenceEntry) -> bool:
    return entry.evidence == "built" and entry.verdict == NOT_RUN_HERE


_WORST_FIRST = ("error", NOT_AVAILABLE, "fail", "inconclusive")


def unmet_requirements(run: RunFolder, evidence: Evidence, devices: Collection[str]) -> dict[str, str]:
    """Return the required variants that did not pass, each with its verdict.

    What was found on a device of the release counts; on the others, where the variant was validated on none of these.
    A variant has to pass on every device that counts and runs it, and to run on one.

    Args:
        run: The run.
        evidence: Its evidence; that of other devices only as far as it is about the files that are there.
        devices: Where the release will run.
    """
    documents = evidence.by_device()
    found: dict[str, str] = {}
    for name in required_variants(run):
        wanted = [item for device, item in documents.items() if device in devices and can_run_on(name, device)]
        counting = wanted or documents.values()
        verdicts = {entry.verdict for item in counting if (entry := item.entry(name)) is not None}
        unmet = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), None)
        if unmet is not None:
            found[name] = unmet
        elif "pass" not in verdicts:
            found[name] = NOT_RUN_HERE if verdicts else "not measured"
    return found

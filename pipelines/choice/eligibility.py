"""Decide whether each target of a run may be released, from its results on each device of the release.

Evidence of several devices may exist. Results on a device count for that device. For a device without any validation,
an emulated row counts if the spec accepts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from paritygate.engine.gpu_fit import why_not_built_for
from paritygate.formats import CPU_FORMATS, ENGINE_FORMATS
from paritygate.pipelines.compare.result import NOT_AVAILABLE, NOT_RUN_HERE
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.workspace import LEFT_OUT, RunFolder, required_variants, targets_left_out
from paritygate.precision import Variant

_CPU = "cpu"
_EMULATED = "emulated"


class Eligibility(Struct, frozen=True, kw_only=True):
    """The eligibility of one target.

    - `entry`: the entry of the evidence to show. `why_not`: why it may not be released, or empty.
    - `devices`: those of the release that its format runs on. `entries`: the deciding entry by device.
    - `has_run`: the file itself was compared on some device.
    """

    entry: EvidenceEntry
    why_not: str
    devices: tuple[str, ...]
    entries: Mapping[str, EvidenceEntry] = field(default_factory=dict)
    has_run: bool = True


def can_run_on(variant: str, device: str) -> bool:
    """Return whether a variant's format runs on the device at all."""
    return Variant.parse(variant).format not in (ENGINE_FORMATS if device == _CPU else CPU_FORMATS)


def eligibilities_of(
    evidence: Evidence, *, devices: tuple[str, ...], accept: Mapping[str, str], engines: Mapping[str, Mapping[str, Any]]
) -> Iterable[Eligibility]:
    """Yield the eligibility of each target, in the order of the spec.

    The evidence of other devices must be about the current files. `devices` are those of the release. `accept` names,
    by variant, the kind of evidence accepted for an absent device. `engines` are conversion facts by variant.
    """
    documents = evidence.by_device()
    for entry in evidence.variants:
        name = entry.variant
        of_variant = {
            device: of_device for device, item in documents.items() if (of_device := item.entry(name)) is not None
        }
        target = _Target(home=evidence.device, entry=entry, by_device=of_variant, documents=tuple(documents))
        eligibility = target.verified(devices)
        emulated = _emulated_entry(documents.values(), name, accept) if eligibility.why_not else None
        yield eligibility if emulated is None else target.emulated(eligibility, emulated, engines.get(name))


def _emulated_entry(documents: Iterable[Evidence], name: str, accept: Mapping[str, str]) -> EvidenceEntry | None:
    """Return the accepted emulated row, if the newest one passed."""
    if accept.get(name) != _EMULATED:
        return None
    rows = (document.emulated_entry(name) for document in documents)
    newest = next((row for row in rows if row is not None and row.evidence == _EMULATED), None)
    return newest if newest is not None and newest.verdict == "pass" else None


class _Target(Struct, frozen=True, kw_only=True):
    """The results of one target.

    `home` is the device of the last validation, and `entry` the result there. `by_device` are results about this file;
    `documents` are all validated devices.
    """

    home: str
    entry: EvidenceEntry
    by_device: Mapping[str, EvidenceEntry]
    documents: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.entry.variant

    def verified(self, devices: tuple[str, ...]) -> Eligibility:
        wanted = tuple(device for device in devices if can_run_on(self.name, device))
        has_run = any(entry.evidence == "verified" for entry in self.by_device.values())
        if not wanted:
            why = f"does not run on {', '.join(devices)}"
            return Eligibility(entry=self.entry, why_not=why, devices=wanted, has_run=has_run)
        by_device = {device: self._verified_on(device) for device in wanted}
        counting = {device: entry for device, entry in by_device.items() if entry is not None}
        why_not = next((self._why_not(device) for device in wanted if device not in counting), "")
        entry = next(iter(counting.values()), self.entry) if not why_not else self.entry
        return Eligibility(entry=entry, why_not=why_not, devices=wanted, entries=counting, has_run=has_run)

    def emulated(self, eligibility: Eligibility, row: EvidenceEntry, facts: Mapping[str, Any] | None) -> Eligibility:
        """Return the eligibility with an emulated row for absent devices, and for nothing else.

        The variant must have passed elsewhere, or be of a kind that no runtime there runs. A file that failed, crashed
        or hung is not saved by another device's row.
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
        """Return the entry of a pass on the device, or None.

        Variants for CPUs run on the CPU even if a GPU is requested. Without a CPU validation, that counts for the CPU.
        """
        entries = [self.by_device.get(device)] if device in self.documents else list(self.by_device.values())
        return next((entry for entry in entries if entry and _passed(entry) and entry.device == device), None)

    def _is_unharmed(self) -> bool:
        elsewhere = (
            entry for device, entry in self.by_device.items() if device != self.home and can_run_on(self.name, device)
        )
        return all(_passed(entry) or _is_built(entry) for entry in (self.entry, *elsewhere))

    def _why_not(self, device: str) -> str:
        """Return why the results do not allow a release for the device."""
        is_absent = device not in self.documents
        entry = self.entry if is_absent else self.by_device.get(device)
        on = "" if device == self.home or is_absent else f" on {device}"
        if entry is None:
            return f"what was compared on {device} is a different file, or none"
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
    """Return the required variants that did not pass, each with its verdict; `LEFT_OUT` for those not in the run.

    Results on devices of the release count; those on others only where there are none. A variant has to pass on every
    device that counts and runs it, and to run on at least one.
    """
    documents = evidence.by_device()
    unmet_by_name: dict[str, str] = {}
    for name in required_variants(run):
        wanted = [item for device, item in documents.items() if device in devices and can_run_on(name, device)]
        counting = wanted or documents.values()
        verdicts = {entry.verdict for item in counting if (entry := item.entry(name)) is not None}
        unmet = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), None)
        if unmet is not None:
            unmet_by_name[name] = unmet
        elif "pass" not in verdicts:
            unmet_by_name[name] = NOT_RUN_HERE if verdicts else "not measured"
    return unmet_by_name | dict.fromkeys(targets_left_out(run), LEFT_OUT)

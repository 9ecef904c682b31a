"""Define the settings of a Triton configuration that decide its speed: rows a call, instances, and waiting time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paritygate.text import StrEnum


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Settings:
    """The searched settings."""

    max_batch_size: int  # rows in one call; 0 without batching
    instances: int  # calls at once, the count of each instance group
    queue_delay_us: int | None = None  # waiting time of a request; None without merging

    def __str__(self) -> str:
        wait = "" if self.queue_delay_us is None else f", {self.queue_delay_us} us"
        rows = f"batch {self.max_batch_size}" if self.max_batch_size else "no batching"
        return f"{rows}, {self.instances} inst.{wait}"

    def within(self, own: Settings) -> Settings:
        """Return the settings, limited to the batches and merging of another configuration."""
        return Settings(
            max_batch_size=min(self.max_batch_size, own.max_batch_size),
            instances=self.instances,
            queue_delay_us=None if own.queue_delay_us is None else self.queue_delay_us,
        )


class TunedUse(StrEnum):
    """The use of measured settings: for these files, carried over from others, or left out."""

    NONE = "none"
    MEASURED = "measured"
    CARRIED_OVER = "carried over"
    LEFT_OUT = "left out"


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedSettings:
    """The settings that `tune` measured of a model, beside its view."""

    use: TunedUse = TunedUse.NONE  # for the version that is served
    settings: Settings | None = None
    version: int | None = None  # the measured one

    @property
    def note(self) -> str:
        """A note on them for the user; empty if nothing was measured."""
        notes = {
            TunedUse.MEASURED: f"batching and instances are those that tune measured for these files: {self.settings}",
            TunedUse.CARRIED_OVER: f"batching and instances are carried over from version {self.version}, which has "
            f"the same inputs and outputs: {self.settings}; measure them again with tune",
            TunedUse.LEFT_OUT: f"tune measured version {self.version}, which has other inputs and outputs: its "
            f"settings ({self.settings}) are not used; measure again with tune",
        }
        return notes.get(self.use, "")


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Return the settings of a configuration, by the names of Triton's fields."""
    batching = config.get("dynamic_batching")
    groups = config.get("instance_group") or [{}]
    return Settings(
        max_batch_size=int(config.get("max_batch_size", 0)),
        instances=max(int(group.get("count") or 1) for group in groups),
        queue_delay_us=None if batching is None else int(batching.get("max_queue_delay_microseconds", 0)),
    )


def with_settings(config: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return a configuration with other settings, without parts that contradict them.

    A warm-up above the largest batch is left out, because it was seen to kill a server. Preferred sizes belong to their
    largest batch, so with another one the server takes all waiting rows. A server with largest batch 1 reports 1 as
    preferred, which would prevent merging beside any other.
    """
    rows = settings.max_batch_size
    groups = config.get("instance_group") or [{}]
    changed: dict[str, Any] = {
        **config,
        "max_batch_size": rows,
        "instance_group": [{**group, "count": settings.instances} for group in groups],
    }
    if settings.queue_delay_us is None:
        changed.pop("dynamic_batching", None)
    else:
        batching = dict(config.get("dynamic_batching") or {})
        if rows != int(config.get("max_batch_size", 0)):
            batching.pop("preferred_batch_size", None)
        changed["dynamic_batching"] = {**batching, "max_queue_delay_microseconds": settings.queue_delay_us}
    if "model_warmup" in config:
        changed["model_warmup"] = [
            item for item in config["model_warmup"] if int(item.get("batch_size", 0)) <= max(1, rows)
        ]
    return changed

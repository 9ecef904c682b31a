"""What of a Triton configuration decides how fast it serves: rows a call, instances, and how long a request waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Settings:
    """What is searched.

    Attributes:
        max_batch_size: The most rows that the server puts into one call; 0 where it does not batch.
        instances: How many calls run at once: the count of each instance group.
        queue_delay_us: Microseconds that a request waits for others; None where the server does not merge requests.
    """

    max_batch_size: int
    instances: int
    queue_delay_us: int | None = None

    def __str__(self) -> str:
        wait = "" if self.queue_delay_us is None else f", {self.queue_delay_us} us"
        rows = f"batch {self.max_batch_size}" if self.max_batch_size else "no batching"
        return f"{rows}, {self.instances} inst.{wait}"

    def within(self, own: Settings) -> Settings:
        """Return the settings without what another configuration leaves no room for: larger batches, or merging."""
        return Settings(
            max_batch_size=min(self.max_batch_size, own.max_batch_size),
            instances=self.instances,
            queue_delay_us=None if own.queue_delay_us is None else self.queue_delay_us,
        )


class TunedUse(str, Enum):
    """What became of settings that were measured: for these files, carried over from others, or left out."""

    NONE = "none"
    MEASURED = "measured"
    CARRIED_OVER = "carried over"
    LEFT_OUT = "left out"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedSettings:
    """The settings that `tune` measured of a model, beside its view.

    Attributes:
        use: Whether they count for the version that is served.
        settings: The settings; None where nothing was measured.
        version: The version that was measured; None where that is not known.
    """

    use: TunedUse = TunedUse.NONE
    settings: Settings | None = None
    version: int | None = None

    @property
    def note(self) -> str:
        """What is to be known of them, in words; empty where nothing was measured."""
        of = "another version" if self.version is None else f"version {self.version}"
        notes = {
            TunedUse.MEASURED: f"batching and instances are those that tune measured for these files: {self.settings}",
            TunedUse.CARRIED_OVER: f"batching and instances are carried over from {of}, which has the same inputs and "
            f"outputs: {self.settings}; measure them again with tune",
            TunedUse.LEFT_OUT: f"tune measured {of}, which has other inputs and outputs: its settings "
            f"({self.settings}) are not used; measure again with tune",
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
    """Return a configuration with other settings, and without what they leave no room for.

    A warm-up above the largest batch is left out, since a server was seen to die of one. Preferred sizes are of the
    largest batch that they stood beside: with another, the server is to take as many rows as wait. It says itself that
    1 is preferred where 1 is the largest, and kept to that it would merge nothing beside any other.
    """
    rows = settings.max_batch_size
    groups = config.get("instance_group") or [{}]
    found: dict[str, Any] = {
        **config,
        "max_batch_size": rows,
        "instance_group": [{**group, "count": settings.instances} for group in groups],
    }
    if settings.queue_delay_us is None:
        found.pop("dynamic_batching", None)
    else:
        batching = dict(config.get("dynamic_batching") or {})
        if rows != int(config.get("max_batch_size", 0)):
            batching.pop("preferred_batch_size", None)
        found["dynamic_batching"] = {**batching, "max_queue_delay_microseconds": settings.queue_delay_us}
    if "model_warmup" in config:
        found["model_warmup"] = [
            item for item in config["model_warmup"] if int(item.get("batch_size", 0)) <= max(1, rows)
        ]
    return found

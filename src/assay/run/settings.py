"""Settings of a run that do not change its results."""

from dataclasses import dataclass, field

from assay.plan.plan import IDENTITY


@dataclass(frozen=True)
class Settings:
    """How a run is executed. None of these enters a key, except the version of the keys."""

    folder: str
    device: str | None = None
    keep_maps: bool = True
    micro_batch: dict[str, int] = field(default_factory=dict)
    identity: int = IDENTITY  # the version of the keys

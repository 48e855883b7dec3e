"""How a run is done; nothing of it enters a key."""

from dataclasses import dataclass, field

from assay.plan.plan import IDENTITY


@dataclass(frozen=True)
class Settings:
    """How a run is done; apart from their version none of this enters a key."""

    folder: str
    device: str | None = None
    keep_maps: bool = True
    micro_batch: dict[str, int] = field(default_factory=dict)
    identity: int = IDENTITY  # the version of the keys

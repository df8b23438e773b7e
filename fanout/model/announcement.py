"""What home tells a region of a version: metadata and durations, no payload (P10, P12)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Announcement:
    """What home tells a region of a version before any payload travels."""

    version_no: int
    shipment_no: int
    shipment_id: str
    version: int
    event_type: str
    labels: str
    """A JSON object as text: home and region hand it on without reading it."""
    age_seconds: float
    """Since acceptance, on home's clock."""
    delay_seconds: float
    """Until it becomes eligible; 0 for now."""

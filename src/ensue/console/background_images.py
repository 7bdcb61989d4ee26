"""The background image of a plane, such as the floor plan of a warehouse."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.errors import ServiceError

URL = "/background"
_KINDS = {".png", ".jpg", ".jpeg", ".webp", ".gif"}  # no SVG: it may hold scripts


@dataclass(frozen=True, slots=True)
class Background:
    """An image file, and the area that it covers."""

    picture: Path
    west: float
    south: float
    east: float
    north: float

    @classmethod
    def parse(cls, text: str) -> "Background":
        """Parse the command-line option: FILE,west,south,east,north."""
        *file, west, south, east, north = ["", *text.rsplit(",", 4)]
        try:
            bounds = [float(bound) for bound in (west, south, east, north)]
        except ValueError:
            bounds = []
        if len(bounds) != 4 or not file[1:] or bounds[0] >= bounds[2] or bounds[1] >= bounds[3]:
            raise ServiceError(
                f"the background {text!r} is not FILE,WEST,SOUTH,EAST,NORTH\n  hint: as in plan.png,0,0,120,80"
            )
        return cls(Path(file[1]), *bounds).validate()

    def validate(self) -> "Background":
        """Return itself if the image exists and has a supported format."""
        if self.picture.suffix.lower() not in _KINDS or not self.picture.is_file():
            raise ServiceError(
                f"{self.picture} is not a supported image\n  hint: supported are {', '.join(sorted(_KINDS))}"
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return the URL and bounds for the map."""
        return {"url": URL, "bounds": [self.west, self.south, self.east, self.north]}

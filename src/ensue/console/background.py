"""A picture under the objects of a plane: the plan of a warehouse, a photograph of a yard."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.errors import ServiceError

URL = "/background"
_KINDS = {".png", ".jpg", ".jpeg", ".webp", ".gif"}  # no SVG: it may hold scripts


@dataclass(frozen=True, slots=True)
class Background:
    """A file, and the part of the plane that it shows."""

    picture: Path
    west: float
    south: float
    east: float
    north: float

    @classmethod
    def given(cls, text: str) -> "Background":
        """From the command line: FILE,west,south,east,north."""
        *file, west, south, east, north = ["", *text.rsplit(",", 4)]
        try:
            bounds = [float(one) for one in (west, south, east, north)]
        except ValueError:
            bounds = []
        if len(bounds) != 4 or not file[1:] or bounds[0] >= bounds[2] or bounds[1] >= bounds[3]:
            raise ServiceError(
                f"background {text!r}\n  hint: a file, and west, south, east and north of what it "
                "shows: plan.png,0,0,120,80"
            )
        return cls(Path(file[1]), *bounds).checked()

    def checked(self) -> "Background":
        """Itself, if there is such a picture."""
        if self.picture.suffix.lower() not in _KINDS or not self.picture.is_file():
            raise ServiceError(
                f"{self.picture} is not a supported picture\n"
                f"  hint: a file of one of the kinds {', '.join(sorted(_KINDS))}"
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        """What the map needs to know of it."""
        return {"url": URL, "bounds": [self.west, self.south, self.east, self.north]}

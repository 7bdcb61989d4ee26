"""Pictures of pages for the documentation: small files, made anew by `pytest --bless`."""

import io
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MOST = 200_000  # bytes
FREQUENT = 192  # colours


def picture(page: Page, name: str, *, bless: bool) -> None:
    """Takes a picture of what is to be seen; with `bless` it is that of the documentation."""
    taken = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    written = io.BytesIO()
    fewer = taken.quantize(palette=_palette(taken), dither=Image.Dither.NONE)
    fewer.save(written, "PNG", optimize=True)
    assert len(taken.getcolors(1 << 24) or ()) > 50, "nothing is to be seen"
    assert len(written.getvalue()) < MOST
    if bless:
        (FOLDER / f"console_{name}.png").write_bytes(written.getvalue())


def _palette(taken: Image.Image) -> Image.Image:
    """256 colours, a third of the bytes: areas stay as they are, and rare signs keep theirs."""
    counted = taken.getcolors(1 << 24) or []
    frequent = sorted(counted, reverse=True)[:FREQUENT]
    rare = taken.quantize(256 - FREQUENT, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in frequent for part in colour] + rare)
    return palette

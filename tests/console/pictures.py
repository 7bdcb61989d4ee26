"""Pictures of pages for the documentation: small files, made anew by `pytest --bless`."""

import io
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MOST = 200_000  # bytes


def picture(page: Page, name: str, *, bless: bool) -> None:
    """Takes a picture of what is to be seen; with `bless` it is that of the documentation."""
    taken = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    written = io.BytesIO()
    # 256 colours are enough for plain areas and text, and a third of the bytes
    taken.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        written, "PNG", optimize=True
    )
    assert len(taken.getcolors(1 << 24) or ()) > 50, "nothing is to be seen"
    assert len(written.getvalue()) < MOST
    if bless:
        (FOLDER / f"console_{name}.png").write_bytes(written.getvalue())

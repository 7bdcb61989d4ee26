"""The plans of a live pattern and of the archived ones, beside each other, as a picture."""

from collections.abc import Sequence

from ensue.algebra.correlation import Correlation
from ensue.algebra.text import show_name, show_pattern, show_range
from ensue.plan.physical import Plan
from ensue.plan.show.drawing.canvas import DIM, LINE, Canvas
from ensue.plan.show.picture import drawn

GAP = 60.0  # between two sides


def picture_archive(correlation: Correlation, plans: Sequence[Plan | None], access: str) -> str:
    """SVG: the live side on the left, what it is joined with on its right."""
    canvas, x = Canvas(), 0.0
    titles = [("live", f"archive accessed: {access}")]
    titles += [
        (f"{join.kind.value} ARCHIVE {show_name(join.archive)}", show_range(join.range))
        for join in correlation.joins
    ]
    for (title, more), plan in zip(titles, plans, strict=True):
        canvas.text((x, 0), title, bold=True)
        canvas.text((x, LINE), more, color=DIM)
        if plan is not None:  # a clause of SQL has none
            canvas.put(drawn(plan), (x, 3 * LINE))
        x = canvas.right + GAP
    return canvas.svg(show_pattern(correlation.live.pattern))

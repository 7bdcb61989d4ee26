"""What the demos share: a demo says what it does while it does it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


@contextmanager
def step(console: Console, doing: str, *, events: int = 0) -> Iterator[None]:
    """Names a step, and then how long it took."""
    console.print(f"{doing} ...", end=" ", soft_wrap=True, markup=False)
    began = time.perf_counter()
    try:
        yield
    except BaseException:
        console.print()  # what is said of it has a line of its own
        raise
    seconds = time.perf_counter() - began
    rate = f", {events / seconds:,.0f} events a second" if events else ""
    console.print(Text(f"{seconds:.1f} s{rate}", style="dim"))

"""A plan's kernel as text for a reader: with comments, under the names of the query."""

from collections.abc import Iterator

from ensue.columns.arrow_kinds import Unit
from ensue.engine.program import kernel_frame, kernel_source
from ensue.kernels.jit import SETTING
from ensue.languages.printing import show
from ensue.plan.physical import Plan, Reference
from ensue.schema import Schema
from ensue.source.compiling import LONG, NEVER, seconds_to_compile

NULLS = "# For events in which no value is missing; another kernel also asks whether there is one."


def shown_kernel(plan: Plan, schema: Schema, unit: Unit = "us") -> str:
    """The kernel that a plan is compiled to, or why it has none.

    It is the text that is compiled but for names and comments: that text has neither the names
    of the query nor its constants, so that other queries can share it.
    """
    query = [f"#   {line}" for line in show(plan.query).splitlines()]
    if isinstance(plan.structure, Reference):
        return "\n".join(["# No kernel: the reference semantics runs", *query])
    frame = kernel_frame(plan, schema, unit, nullable=False, readable=True)
    text = "\n".join(["# The kernel of", *query, NULLS, kernel_source(frame).text.rstrip()])
    inside = [shown_kernel(role.inner, schema, unit) for role in plan.roles if role.inner]
    return "\n\n\n".join([text, *inside])


def told_of_compiling(plan: Plan, schema: Schema, unit: Unit) -> Iterator[str]:
    """What is to be said of a kernel that takes long to compile."""
    if isinstance(plan.structure, Reference):
        return
    text = kernel_source(kernel_frame(plan, schema, unit, nullable=False)).text
    seconds = seconds_to_compile(text, "step")
    if seconds > NEVER:
        yield (
            f"kernel: not compiled, as that would take about {seconds:.0f} s; it runs as Python, "
            f"some fifty times slower ({SETTING}=always compiles it all the same)"
        )
    elif seconds > LONG:
        yield (
            f"kernel: takes about {seconds:.0f} s to compile; until that pays off, it runs as "
            "Python"
        )

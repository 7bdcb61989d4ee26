"""What a call says of the columns of an archive, checked against them."""

from dataclasses import dataclass

import pyarrow as pa

from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.stream import Shape, refuse_own_names, shape_of
from ensue.errors import EventError, did_you_mean
from ensue.schema import Kind

Time = str | tuple[str, str]


@dataclass(frozen=True)
class Given:
    """What the call said of the columns."""

    time: Time | None
    type: str | None = None
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    version: int | str | None = None
    complete: object | None = None

    def refuse_version(self, what: str) -> None:
        if self.version is not None:
            raise EventError(
                f"version={self.version!r}: {what} has no versions\n"
                "  hint: leave version= out; Delta and Iceberg tables have them"
            )

    def shape(self, schema: pa.Schema) -> Shape:
        """The shape of the archive's events, with all columns checked."""
        if self.time is None:
            raise EventError(
                "the time column of the archive is missing: pass time=\n"
                "  hint: only archives created by Ensue know it"
            )
        refuse_own_names(schema.names)
        shape = shape_of(schema, time=self.time, type=self.type, order=self.order)
        for name in self.key:
            if name not in schema.names:
                hint = did_you_mean(name, schema.names)
                raise EventError(f"no column '{name}' for key=\n  hint: {hint or 'no columns'}")
            if kind_of_arrow(schema.field(name).type) is Kind.OTHER:
                raise EventError(
                    f"key column '{name}' is {schema.field(name).type}: it cannot "
                    "identify objects\n  hint: use a text, a number, a boolean or a time"
                )
        return shape

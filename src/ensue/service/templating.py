"""Templates for the stream of a service."""

from collections.abc import Mapping
from typing import Any

from ensue.schema import Kind
from ensue.service.columns import Columns
from ensue.service.templates import Filled, TemplateStream, fill


def stream_of(columns: Columns) -> TemplateStream:
    """What templates need to know of a stream."""
    key = columns.stream.key
    fields = columns.arrow
    text = key is not None and str(fields.field(key).type) in ("string", "large_string")
    return TemplateStream(
        key=key,
        key_is_text=text,
        calendar=columns.calendar,
        whole_numbers=columns.shape.schema.time_kind is Kind.INTEGER,
        located=columns.stream.location is not None,
        earth=columns.stream.space == "earth",
    )


def filled(name: str, values: Mapping[str, Any], columns: Columns) -> Filled:
    """The text of a template."""
    return fill(name, values, stream_of(columns))

"""Templates for the stream of a service."""

from collections.abc import Mapping
from typing import Any

from ensue.schema import ValueKind
from ensue.service.event_columns import EventColumns
from ensue.service.templates import fill_template
from ensue.service.templates.template import FilledTemplate, TemplateStream


def describe_template_stream(columns: EventColumns) -> TemplateStream:
    """What templates need to know of a stream."""
    key = columns.stream.key
    fields = columns.arrow
    text = key is not None and str(fields.field(key).type) in ("string", "large_string")
    return TemplateStream(
        key=key,
        key_is_text=text,
        calendar=columns.calendar,
        whole_numbers=columns.shape.schema.time_kind is ValueKind.INTEGER,
        located=columns.stream.location is not None,
        earth=columns.stream.space == "earth",
    )


def fill_for_stream(name: str, values: Mapping[str, Any], columns: EventColumns) -> FilledTemplate:
    """The text of a template."""
    return fill_template(name, values, describe_template_stream(columns))

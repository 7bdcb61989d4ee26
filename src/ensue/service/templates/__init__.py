"""Templates of frequent subscriptions, written as OPSL that users can edit."""

from ensue.service.templates.template import (
    FilledTemplate,
    Parameter,
    ParameterKind,
    Template,
    TemplateStream,
)
from ensue.service.templates.template_registry import TEMPLATES, fill_template

__all__ = [
    "TEMPLATES",
    "FilledTemplate",
    "Parameter",
    "ParameterKind",
    "Template",
    "TemplateStream",
    "fill_template",
]

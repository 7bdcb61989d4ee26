"""Templates against noise: questions that many ask, as OPSL that can be opened and edited."""

from ensue.service.templates.filling import TEMPLATES, fill
from ensue.service.templates.template import Filled, Kind, Parameter, Template, TemplateStream

__all__ = ["TEMPLATES", "Filled", "Kind", "Parameter", "Template", "TemplateStream", "fill"]

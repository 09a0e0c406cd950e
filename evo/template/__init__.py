"""Templates: CUDA source with holes, rendered into candidates."""

from evo.template.loading import Template, list_templates, load_template
from evo.template.short import Cast, ShortTemplate, template

__all__ = ["Cast", "ShortTemplate", "Template", "list_templates", "load_template", "template"]

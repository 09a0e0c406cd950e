"""Templates: CUDA source with holes, rendered into candidates."""

from evo.template.sandbox import RENDERED_BYTES
from evo.template.template import Template, list_templates, load_template

__all__ = ["RENDERED_BYTES", "Template", "list_templates", "load_template"]

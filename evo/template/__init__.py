"""Templates: CUDA source with holes, rendered into candidates."""

from evo.template.template import Template, list_templates, load_template

__all__ = ["Template", "list_templates", "load_template"]

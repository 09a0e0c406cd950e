"""Templates: CUDA source with holes, rendered into candidates."""

from evo.template.template import RENDERED_BYTES, Template, list_templates, load_template

__all__ = ["RENDERED_BYTES", "Template", "list_templates", "load_template"]

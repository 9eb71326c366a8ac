"""Sphinx's settings for the documentation site, which `make docs` builds. Nothing is fetched."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import tcnaps

project, author, release = "tcnaps", "the tcnaps authors", tcnaps.__version__
project_copyright = "the tcnaps authors, MIT licence"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title, html_show_sourcelink = "furo", "tcnaps", False
html_math_renderer = "mathml"
default_role = "code"  # text between single backticks in docstrings

myst_enable_extensions, myst_heading_anchors = ["dollarmath"], 4
nb_execution_mode, nb_execution_timeout, nb_execution_raise_on_error = "force", 600, True
nb_ipywidgets_js = {}  # scripts that would be fetched; without a kernel, widgets do nothing
nb_merge_streams = True

autodoc_member_order, autodoc_inherit_docstrings = "bysource", False
# Names are documented where they are defined, without the methods that scikit-learn adds to an estimator.
requests = "set_fit_request, set_predict_request, set_score_request, set_transform_request"
autodoc_default_options = {"members": True, "ignore-module-all": True, "exclude-members": requests}
napoleon_use_ivar = True  # attributes are described once


def visit_formula(translator, node):
    """Writes a formula as MathML, which browsers show without a script."""
    tex = re.sub(r"\\big\b", "", node.astext())  # a command that docutils does not know
    translator.body.append(tex2mathml(tex, as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def escape_marks(app, what, name, obj, options, lines):
    """Escapes bars, as in log|Q|, and stars before names, which reStructuredText would take for its own marks."""
    if lines and lines[0].startswith("Alias for field number"):  # Python's own docstring for fields of a named tuple
        lines.clear()
    marked = [line.replace("|", r"\|").replace("(*", r"(\*") for line in lines]
    lines[:] = [line if line.lstrip().startswith(">>>") else new for line, new in zip(lines, marked, strict=True)]


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape_marks)
    app.add_html_math_renderer("mathml", (visit_formula, None), (visit_formula, None))


# Several classes have attributes of the same name, which annotations and text then refer to by it.
suppress_warnings = ["ref.python"]

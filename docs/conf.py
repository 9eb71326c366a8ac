"""Settings of the documentation site. `make docs` gathers its pages (build.py) and builds it; nothing is fetched."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import tcnaps

project, author, release = "tcnaps", "the tcnaps authors", tcnaps.__version__
project_copyright = "the tcnaps authors, MIT licence"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title, html_show_sourcelink = "furo", "tcnaps", False
html_math_renderer = "mathml"
default_role = "code"  # what docstrings have between single backticks

myst_enable_extensions, myst_heading_anchors = ["dollarmath"], 4
nb_execution_mode, nb_execution_timeout, nb_execution_raise_on_error = "force", 600, True
nb_ipywidgets_js = {}  # would be fetched; without a kernel no widget does anything
nb_merge_streams = True

autodoc_member_order, autodoc_inherit_docstrings = "bysource", False
# Names where they are defined, and without the methods that scikit-learn writes for an estimator.
requests = "set_fit_request, set_predict_request, set_score_request, set_transform_request"
autodoc_default_options = {"members": True, "ignore-module-all": True, "exclude-members": requests}
napoleon_use_ivar = True  # attributes are described once


def visit_formula(translator, node):
    """Formulas as MathML, which browsers show without a script."""
    tex = re.sub(r"\\big\b", "", node.astext())  # one command that docutils does not know
    translator.body.append(tex2mathml(tex, as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def escape_marks(app, what, name, obj, options, lines):
    """Bars, as in log|Q|, and stars before names are no marks of reStructuredText in our docstrings."""
    if lines and lines[0].startswith("Alias for field number"):  # Python's own, of a named tuple
        lines.clear()
    marked = [line.replace("|", r"\|").replace("(*", r"(\*") for line in lines]
    lines[:] = [line if line.lstrip().startswith(">>>") else new for line, new in zip(lines, marked, strict=True)]


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape_marks)
    app.add_html_math_renderer("mathml", (visit_formula, None), (visit_formula, None))


# Several classes have attributes of the same name, which annotations and text then refer to by it.
suppress_warnings = ["ref.python"]

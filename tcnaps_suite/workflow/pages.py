"""What HTML pages are made of: templates, prose with formulas, and tables."""

import re
from base64 import b64encode
from html import escape
from pathlib import Path

import jinja2
import mistune
import pandas as pd
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from markupsafe import Markup

FRACTIONS = re.compile("accuracy|recall|interval|difference|gain|beyond|confidence|share|paper|published")  # columns


def render(template: str, **values: object) -> str:
    """Fills a file of `templates/`. Values are escaped, except for HTML from `markdown` and `table`."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"markdown": markdown, "base64": lambda file: b64encode(file.read_bytes()).decode()}
    return environment.get_template(template).render(values)


def markdown(text: str) -> Markup:
    """Markdown as HTML. Formulas become MathML, which needs no script; HTML in the text is escaped."""
    page = mistune.create_markdown(plugins=["table", "math"])
    page.renderer.register("inline_math", lambda renderer, formula: _mathml(formula, as_block=False))
    page.renderer.register("block_math", lambda renderer, formula: _mathml(formula, as_block=True))
    return Markup(page(text))


def _mathml(formula: str, as_block: bool) -> str:
    try:
        return tex2mathml(formula, as_block=as_block)
    except MathError:
        return escape(formula)


def table(frame: pd.DataFrame) -> Markup:
    """A table as HTML, with fractions in percent. HTML in its cells is escaped."""
    shown = frame.copy()
    for name in frame.select_dtypes("number"):
        if FRACTIONS.search(str(name).lower()):
            shown[name] = [f"{100 * value:.1f}" if pd.notna(value) else "" for value in frame[name]]
    return Markup(shown.to_html(index=False, classes="sortable", border=0, na_rep="", float_format="{:.4g}".format))

"""Pages of HTML that stand alone: templates, and what they show as text, tables and pictures within the page."""

import re
from html import escape
from pathlib import Path

import jinja2
import mistune
import pandas as pd
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from markupsafe import Markup

from tcnaps_suite.widgets.pictures import data_address

FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
FRACTIONS = re.compile("accuracy|recall|interval|difference|gain|beyond|confidence|share|paper")


def render(template: str, **values: object) -> str:
    """A page from a file of `templates/`. Values are escaped there, but for what the filters below make."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"markdown": markdown, "table": table, "png_address": png_address}
    return environment.get_template(template).render(values)


def markdown(text: str) -> Markup:
    """A notebook's prose; formulas become MathML, which needs no script."""
    return Markup(mistune.create_markdown(escape=False, plugins=["table"])(FORMULA.sub(_mathml, text)))


def _mathml(formula: re.Match) -> str:
    try:
        found = tex2mathml(formula[1] or formula[2], as_block=formula[1] is not None)
        return re.sub(r"\s*\n\s*", "", found)
    except MathError:
        return escape(formula[0])


def table(frame: pd.DataFrame) -> Markup:
    """A table whose columns can be sorted; fractions are shown in percent."""
    shown = frame.copy()
    for name in frame.select_dtypes("number"):
        if FRACTIONS.search(str(name).lower()):
            shown[name] = [f"{100 * value:.1f}" if pd.notna(value) else "" for value in frame[name]]
    look = {"classes": "sortable", "border": 0, "na_rep": "", "float_format": "{:.4g}".format}
    return Markup(shown.to_html(index=False, **look))


def png_address(picture: Path | bytes) -> str:
    """A PNG as an address that holds all of it."""
    return data_address(picture if isinstance(picture, bytes) else picture.read_bytes(), "image/png")

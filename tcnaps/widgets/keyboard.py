"""Keys for the controls that have the focus.

In JupyterLab and Notebook 7 a key pressed in a list, on a slider or on a button would go to the notebook: an arrow
leads to another cell, Enter edits it, D twice deletes it. Both leave alone what carries a certain attribute; the few
words of JavaScript below set it, for plain keys alone, so that Ctrl+S and Shift+Enter go on to work.
"""

import ipywidgets

_WIDGETS = ".tcnaps-explorer, .tcnaps-stepper, .tcnaps-view"
_SCRIPT = f"""
if (!window.tcnapsKeys) {{
  window.tcnapsKeys = true;
  window.addEventListener('keydown', event => {{
    const focused = event.target;
    if (!(focused instanceof Element) || !focused.closest('{_WIDGETS}')) return;
    const ofNotebook = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === 'Enter');
    if (ofNotebook) focused.removeAttribute('data-lm-suppress-shortcuts');
    else focused.setAttribute('data-lm-suppress-shortcuts', 'true');
  }}, true);
}}
"""


def keys() -> ipywidgets.HTML:
    """An invisible child for a widget of ours, that takes care of its keys wherever it is shown."""
    script = " ".join(_SCRIPT.split())
    return ipywidgets.HTML(f'<style onload="{script}"></style>', layout=ipywidgets.Layout(display="none"))

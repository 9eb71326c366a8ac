// In JupyterLab and Notebook 7, a key that is pressed in a list, on a slider or on a button also goes to the notebook: an
// arrow selects another cell, Enter edits it, D twice deletes it. Both ignore elements with the attribute below. It is
// set for plain keys only, so that Ctrl+S and Shift+Enter keep working.
function initialize() {
  if (window.tcnapsKeys) return;
  window.tcnapsKeys = true;
  window.addEventListener("keydown", (event) => {
    const focused = event.target;
    if (!(focused instanceof Element) || !focused.closest(".tcnaps-widget")) return;
    const shortcut = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter");
    if (shortcut) focused.removeAttribute("data-lm-suppress-shortcuts");
    else focused.setAttribute("data-lm-suppress-shortcuts", "true");
  }, true);
}

export default { initialize };

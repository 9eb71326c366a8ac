// Pictures in a grid, one of them selected by a click or the arrow keys. Other keys that the page knows go to it.
function render({ model, el }) {
  const grid = document.createElement("div");
  grid.className = "tcnaps-grid";
  grid.tabIndex = 0;
  grid.setAttribute("role", "listbox");
  grid.setAttribute("aria-label", "Images");

  function element(kind, text) {
    const made = document.createElement(kind);
    made.textContent = text;
    return made;
  }

  function figure(picture, number) {
    const made = element("figure", "");
    made.className = picture.verdict;
    made.title = picture.title;
    made.setAttribute("role", "option");
    const image = picture.address ? new Image() : element("span", "(no picture)");
    image.src = picture.address;
    image.alt = picture.title;
    made.append(image, element("b", ""), element("figcaption", picture.name), element("figcaption", picture.caption));
    made.addEventListener("click", () => select(number));
    return made;
  }

  function mark() {
    const marks = model.get("marks");
    [...grid.children].forEach((made, number) => {
      made.querySelector("b").textContent = marks[number] ?? "";
      made.setAttribute("aria-selected", String(number === selected()));
    });
  }

  function fill() {
    grid.replaceChildren(...model.get("pictures").map(figure));
    mark();
  }

  function selected() {
    return model.get("pictures").findIndex((picture) => picture.file === model.get("selected"));
  }

  function select(number) {
    const place = Math.max(0, Math.min(number, grid.children.length - 1));
    model.set("selected", model.get("pictures")[place]?.file ?? "");
    model.save_changes();
    grid.children[place]?.scrollIntoView({ block: "nearest" });
  }

  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const number = selected(), key = event.key.toLowerCase();
    if (event.key in steps) select(number + steps[event.key]);
    else if (!model.get("shortcuts").includes(key)) return;
    else if (!event.repeat) {
      model.send({ key, file: model.get("selected") });
      if (key !== "u") select(number + 1);
    }
    event.preventDefault();
  });
  model.on("change:pictures", fill);
  model.on("change:marks change:selected", mark);
  el.append(grid);
  fill();
}

export default { render };

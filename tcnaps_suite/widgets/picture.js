// Over a picture that matplotlib has drawn: a card for each of its dots, a mark, and zoom. Everything else is drawn there.
const PARTS = `<div class="xframe"><div class="xstage"><img draggable="false"><svg role="group"></svg></div></div>
  <div class="xcard" role="tooltip" hidden></div>
  <div class="xzoom"><button title="Zoom in: also Ctrl and the wheel">+</button><button title="Zoom out">−</button>
  <button title="Show all; drag to move what is zoomed">Reset</button></div>`;
const [FARTHEST, RADIUS, RING] = [12, 8, 13]; // the zoom, and pixels of the picture
const within = (value, low, high) => Math.min(Math.max(value, low), high);

function render({ model, el, signal }) {
  el.classList.add("xpicture");
  el.insertAdjacentHTML("beforeend", PARTS);
  const [frame, stage, image, layer, card, zoomer] = [".xframe", ".xstage", "img", "svg", ".xcard", ".xzoom"]
    .map((name) => el.querySelector(name));
  const ring = circle(RING, "xring");
  let dots = [], circles = [], reached = 0, shown = null; // the dot that Tab reaches, and the one with the card
  let [scale, left, top] = [1, 0, 0]; // of the stage; left and top are shares of the frame

  function circle(radius, name) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    made.setAttribute("r", radius);
    made.setAttribute("class", name);
    return made;
  }

  function draw() {
    const [width, height] = model.get("size");
    dots = model.get("dots");
    image.src = model.get("image");
    image.alt = model.get("alt");
    image.style.aspectRatio = `${width} / ${height}`;
    layer.setAttribute("viewBox", `0 0 ${width} ${height}`);
    layer.style.display = zoomer.style.display = dots.length ? "" : "none";
    reached = Math.min(reached, dots.length - 1);
    if (circles.length !== dots.length) layer.replaceChildren(...(circles = dots.map(() => circle(RADIUS, "xdot"))), ring);
    dots.forEach(({ x, y, words }, number) => {
      const look = { cx: x, cy: y, role: "button", tabindex: number === reached ? 0 : -1, "aria-label": words };
      look["aria-pressed"] = number === model.get("value");
      for (const [name, value] of Object.entries(look)) circles[number].setAttribute(name, value);
    });
    const marked = dots[model.get("value") ?? -1];
    ring.style.display = marked ? "" : "none";
    if (marked) ring.setAttribute("cx", marked.x), ring.setAttribute("cy", marked.y);
    show(shown);
  }

  function show(number) {
    shown = dots[number] ? number : null;
    card.hidden = shown === null;
    if (card.hidden) return;
    card.innerHTML = `<img alt="" src="${model.get("images")[number]}">${dots[number].card}`;
    const [dot, all] = [circles[number].getBoundingClientRect(), el.getBoundingClientRect()];
    const [x, y] = [dot.x + dot.width / 2 - all.x, dot.y + dot.height / 2 - all.y];
    card.style.left = `${x > all.width / 2 ? x - card.offsetWidth - 16 : x + 16}px`;
    card.style.top = `${y > all.height / 2 ? y - card.offsetHeight - 4 : y + 4}px`;
  }

  function mark(number) {
    model.set("value", number === model.get("value") ? null : number);
    model.save_changes();
  }

  function place() {
    [left, top] = [left, top].map((start) => within(start, 1 - scale, 0));
    stage.style.transform = `translate(${100 * left}%, ${100 * top}%) scale(${scale})`;
    frame.classList.toggle("xzoomed", scale > 1);
    show(shown);
  }

  function zoom(factor, x = 0.5, y = 0.5) {
    const ratio = within(scale * factor, 1, FARTHEST) / scale;
    [scale, left, top] = [scale * ratio, x - (x - left) * ratio, y - (y - top) * ratio];
    place();
  }

  function focus(number) {
    circles[reached]?.setAttribute("tabindex", -1);
    circles[(reached = number)].setAttribute("tabindex", 0);
    const [width, height] = model.get("size");
    const [x, y] = [(scale * dots[number].x) / width, (scale * dots[number].y) / height];
    if (Math.abs(left + x - 0.5) > 0.5 || Math.abs(top + y - 0.5) > 0.5) [left, top] = [0.5 - x, 0.5 - y]; // out of sight
    circles[number].focus({ preventScroll: true });
    place();
  }

  const number = (event) => circles.indexOf(event.target);
  const on = (target, kind, react, options) => target.addEventListener(kind, react, { signal, ...options });
  on(layer, "pointerover", (event) => show(number(event)));
  on(layer, "pointerout", () => show(null));
  on(layer, "focusin", (event) => show(number(event)));
  on(layer, "focusout", () => show(null));
  on(layer, "click", (event) => number(event) >= 0 && (focus(number(event)), mark(number(event))));
  on(layer, "keydown", (event) => {
    const axis = { ArrowLeft: "x", ArrowRight: "x", ArrowUp: "y", ArrowDown: "y" }[event.key];
    if (axis) {
      const order = dots.map((_, k) => k).sort((a, b) => dots[a][axis] - dots[b][axis]);
      const next = order.indexOf(reached) + (/Right|Down/.test(event.key) ? 1 : -1);
      if (next in order) focus(order[next]);
    } else if (event.key === "Enter" || event.key === " ") mark(reached);
    else if (event.key === "Escape") mark(model.get("value")); // takes it away
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  on(document, "click", (event) => { // a row of a table in the same widget, which names a dot
    const row = event.target.closest?.("tr"), named = row?.querySelector("[data-dot]");
    if (!dots.length || !named || !row.closest(".tcnaps-widget")?.contains(el)) return;
    focus(Number(named.dataset.dot));
    mark(Number(named.dataset.dot));
  });

  let from = null; // where the pointer and the stage were when a drag began
  on(frame, "pointerdown", (event) => (from = scale > 1 ? [event.clientX, event.clientY, left, top] : null));
  on(frame, "pointermove", (event) => {
    if (!from || !event.buttons) return;
    const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
    if (Math.hypot(x, y) < 4) return;
    frame.setPointerCapture(event.pointerId); // no click any more
    shown = null;
    [left, top] = [from[2] + x / frame.clientWidth, from[3] + y / frame.clientHeight];
    place();
  });
  on(frame, "wheel", (event) => {
    if (!dots.length || !(event.ctrlKey || event.metaKey)) return; // the page scrolls
    event.preventDefault();
    const box = frame.getBoundingClientRect();
    const pixels = event.deltaY * (event.deltaMode ? 33 : 1); // some browsers count lines
    zoom(Math.exp(-pixels / 400), (event.x - box.x) / box.width, (event.y - box.y) / box.height);
  }, { passive: false });
  [1.5, 1 / 1.5, 0].forEach((factor, k) => on(zoomer.children[k], "click", () => zoom(factor)));

  const names = ["image", "dots", "images", "value"].map((name) => `change:${name}`);
  names.forEach((name) => model.on(name, draw));
  on(window, "resize", () => show(null));
  draw();
  return () => names.forEach((name) => model.off(name, draw));
}

export default { render };

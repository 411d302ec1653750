// Adds the controls of a page's charts; each control changes all charts.

// Adds a row of buttons. One of them is pressed, initially the first.
function addChoices(id, choices, choose) {
  const buttons = choices.map(([label, value]) => {
    const button = html("button", { type: "button", class: "choice", "aria-pressed": "false" }, label);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(value);
    });
    return button;
  });
  buttons[0].setAttribute("aria-pressed", "true");
  byId(id).replaceChildren(...buttons);
}

// Adds the controls of the scale, of smoothing, and of the range of steps that
// was chosen in a chart.
function startViewControls() {
  addChoices("scale-choices", [["linear", false], ["log", true]], (isLog) => view.set({ isLog }));
  addChoices("smoothing-choices", [["raw", 0], ["smooth", 0.6], ["smoother", 0.9]], (smoothing) => view.set({ smoothing }));
  const zoom = byId("zoom");
  zoom.addEventListener("click", () => view.set({ range: null }));
  view.onChange = () => {
    zoom.hidden = view.range === null;
    if (view.range) setText(zoom, `steps ${view.range.join(" to ")} \u2715`);
  };
}

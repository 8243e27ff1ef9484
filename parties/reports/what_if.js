"use strict";
// Chooses among results that were computed before; it computes nothing. One option of a column is
// [grade, guess, order kept, setting, YAML, number of its curve].
(() => {
  const data = JSON.parse(document.getElementById("what-if-data").textContent);
  const get = name => document.getElementById("w-" + name);
  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const choices = (select, options) => {
    for (const [value, text] of options) {
      const made = document.createElement("option");
      made.value = value;
      made.textContent = text;
      select.append(made);
    }
  };
  const column = get("column"), budget = get("budget"), mechanism = get("mechanism"), points = get("points");
  const state = data.columns.map(() => null);
  const asked = at => {
    if (state[at] === null) return null;
    const { mechanism, points, budget } = state[at], found = data.columns[at].options;
    const key = data.columns[at].points === null ? "" : mechanism + "|" + (points || data.columns[at].points);
    return (found[key] || found[mechanism + "|" + data.columns[at].points] || [])[budget] || null;
  };
  const option = at => asked(at) || data.columns[at].chosen;

  const show = () => {
    get("said").textContent = data.said[budget.value] +
      (mechanism.value === "local" ? "; a value's cell is told exactly all the same" : "");
    budget.setAttribute("aria-valuetext", get("said").textContent);
    const rows = data.columns.map((one, at) => {
      const [grade, guess, order, setting] = option(at), row = document.createElement("tr");
      const cells = [one.name, data.words[grade], guess, order, asked(at) ? setting : setting + " (run file)"];
      cells.forEach((text, place) => {
        const cell = document.createElement(place ? "td" : "th");
        if (place === 0) cell.scope = "row";
        if (place === 1) {
          const badge = document.createElement("span");
          badge.className = "grade g" + grade;
          badge.textContent = text;
          cell.append(badge);
        } else {
          cell.textContent = text;
          if (place > 1) cell.dataset.label = ["guess", "order kept", "setting"][place - 2];
        }
        row.append(cell);
      });
      return row;
    });
    get("rows").replaceChildren(...rows);
    const shown = Number(column.value);
    const curve = (number, stroke, dashes) => svg("polyline", {
      points: data.curves[number], stroke, "stroke-width": 2, "stroke-dasharray": dashes,
    });
    get("curves").replaceChildren(
      curve(data.columns[shown].chosen[5], "var(--s6)", "4 3"),
      curve(option(shown)[5], "var(--s1)", "none"),
    );
    get("legend").textContent = "With what odds two values of " + data.columns[shown].name +
      " are told apart, by their distance: dashed as in the run file, solid as chosen here.";
    const lines = data.columns.flatMap((one, at) => asked(at) ? [asked(at)[4]] : []);
    get("yaml").textContent = lines.length
      ? ["desensitize:", "  columns:", ...lines].join("\n")
      : "# as it stands in the run file";
  };
  const choose = () => {
    data.columns.forEach((_, at) => {
      if (column.value === "" || Number(column.value) === at)
        state[at] = { mechanism: mechanism.value, points: Number(points.value), budget: Number(budget.value) };
    });
    show();
  };

  choices(column, [["", "all columns"], ...data.columns.map((one, at) => [at, one.name])]);
  choices(mechanism, data.mechanisms.map(one => [one, one]));
  choices(points, [[0, "as in the run file"], ...data.points.map(one => [one, one])]);
  mechanism.value = data.mechanism;
  budget.max = data.budgets.length - 1;
  budget.value = data.start;
  for (const [y, text] of data.ticks) {
    get("axes").append(
      svg("line", { x1: 40, x2: 335, y1: y, y2: y, stroke: "var(--line)" }), svg("text", { x: 2, y: y + 3 }, text));
  }
  for (const [x, text] of data.shares) get("axes").append(svg("text", { x, y: 185, "text-anchor": "middle" }, text));
  get("axes").append(svg("text", { x: 335, y: 197, "text-anchor": "end" }, "distance, as a share of the range"));
  for (const control of [budget, mechanism, points]) control.addEventListener("input", choose);
  column.addEventListener("input", show);
  get("reset").addEventListener("click", () => { state.fill(null); show(); });
  document.getElementById("what-if").hidden = false;
  document.getElementById("what-if-table").hidden = true;
  show();
})();

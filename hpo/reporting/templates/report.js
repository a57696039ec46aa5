"use strict";
(() => {
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const variable = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // Colours are named after CSS variables, so that a figure follows the page's theme.
  const coloured = (value) => {
    if (typeof value === "string") return value.startsWith("var:") ? variable(value.slice(4)) : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(coloured);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v)]));
    return value;
  };

  const layoutOf = (own) => {
    const axis = { gridcolor: variable("rule"), linecolor: variable("rule"), zeroline: false, automargin: true, fixedrange: true };
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", dragmode: false,
      font: { family: variable("font"), size: 13, color: variable("ink") },
      hoverlabel: { bgcolor: variable("raised"), bordercolor: variable("rule"), font: { color: variable("ink") }, align: "left" },
      ...own, margin: { l: 60, r: 16, t: 16, b: 48, ...own.margin },
    };
    for (const key of ["xaxis", "yaxis", "yaxis2"]) {
      if (key in own || key !== "yaxis2") layout[key] = { ...axis, ...own[key] };
    }
    return layout;
  };

  const figures = JSON.parse(document.getElementById("figures").textContent);
  const draw = () => {
    if (typeof Plotly === "undefined") return;
    for (const place of document.querySelectorAll(".plot")) {
      const figure = figures[place.dataset.figure];
      Plotly.react(place, coloured(figure.data), coloured(layoutOf(figure.layout)), { responsive: true, displayModeBar: false });
    }
  };

  const button = document.getElementById("theme");
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); draw(); });
  prefersDark.addEventListener("change", () => { label(); draw(); });

  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[i].dataset.value;
      const rows = [...table.tBodies[0].rows].sort((p, q) => {
        const order = compare(value(p), value(q));
        return down && value(p) !== "" && value(q) !== "" ? -order : order; // what is empty stays last
      });
      table.tBodies[0].append(...rows);
    }));
  }

  const open = () => {
    const target = location.hash.startsWith("#trail-") && document.getElementById(location.hash.slice(1));
    if (target) { target.open = true; target.scrollIntoView({ block: "center" }); }
  };
  window.addEventListener("hashchange", open);
  label();
  draw();
  open();
})();

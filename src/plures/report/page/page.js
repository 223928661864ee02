"use strict";
(() => {
  const root = document.documentElement;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const darkColours = read("colours");
  const places = [...document.querySelectorAll("[data-figure]")];
  const button = document.getElementById("theme");
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const drawn = new Set();
  const hidden = new Set();

  const isDark = () => root.dataset.theme === "dark" || (root.dataset.theme !== "light" && prefersDark.matches);

  // Figures come in the colours of light ground; on dark ground each becomes its partner.
  const coloured = (value, colours) => {
    if (typeof value === "string") return Object.hasOwn(colours, value) ? colours[value] : value;
    if (Array.isArray(value)) return value.map((item) => coloured(item, colours));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, key === "text" || key === "customdata" ? item : coloured(item, colours)]));
  };

  const figure = (key) => {
    const { data, layout } = coloured(figures[key], isDark() ? darkColours : {});
    for (const trace of data) if (trace.meta && hidden.has(trace.meta.label)) trace.visible = false;
    // On a touch screen a finger on a chart scrolls the page.
    if (touch) {
      layout.dragmode = false;
      for (const name of ["xaxis", "yaxis"]) if (layout[name]) layout[name].fixedrange = true;
    }
    for (const name of ["xaxis", "yaxis"]) if (layout[name]) layout[name].automargin = true;
    return { data, layout };
  };

  const draw = (place) => {
    const { data, layout } = figure(place.dataset.figure);
    drawn.add(place);
    return Plotly.react(place, data, layout, { responsive: true, displayModeBar: false, doubleClick: "reset" });
  };

  // Those that a reader sees at once, the others when they are scrolled to.
  const redraw = () => {
    for (const place of drawn) watcher.observe(place);
    drawn.clear();
  };
  const drawAll = () => Promise.all(places.map(draw));

  const showTheme = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    redraw();
  };

  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);
  window.addEventListener("beforeprint", drawAll);

  const chips = [...document.querySelectorAll("[data-label]")];
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      const label = chip.dataset.label;
      if (!hidden.delete(label)) hidden.add(label);
      for (const other of chips) if (other.dataset.label === label) other.setAttribute("aria-pressed", String(!hidden.has(label)));
      redraw();
    });
  }

  // Charts are drawn as a reader comes near them: a page may have a hundred.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "600px" });
  for (const place of places) watcher.observe(place);
  button.setAttribute("aria-pressed", String(isDark()));
  window.plures = { drawAll };
})();

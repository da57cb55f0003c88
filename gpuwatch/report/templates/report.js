(() => {
  const { root, textOf, bytesOf, plain, colour, axis, start } = page;
  const { windows: drawn, overlaid } = JSON.parse(textOf("gpuwatch-drawn"));
  const PAPER_PX = 680; // fits into the margins of both A4 and Letter
  const ROLES = ["first", "second", "third", "fourth", "fifth", "sixth"];
  let paper = false;
  const config = { displaylogo: false, responsive: true, showSendToCloud: false, topojsonURL: "", modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  const look = () => ({
    ...page.look(),
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") } },
  });

  const narrow = () => innerWidth < 600 && !paper;
  const ROW_PX = () => (narrow() ? 34 : 23); // narrow: each row's name is above the row
  const TITLE_PX = () => (narrow() ? 44 : 30); // narrow: the names of the lines are below the title

  function timeline(data) {
    const traces = [], layout = { ...look(), showlegend: false, margin: { l: narrow() ? 45 : 70, r: narrow() ? 8 : 20, t: 10, b: 55 }, shapes: [], annotations: [], hovermode: "x" };
    const heights = data.lanes.map((lane) => (lane.spans ? 10 + ROW_PX() * lane.spans.length : 130));
    const total = heights.reduce((sum, each) => sum + each + TITLE_PX(), 0);
    let top = total;
    data.lanes.forEach((lane, index) => {
      const suffix = index ? String(index + 1) : "", high = top - TITLE_PX(), low = Math.max(high - heights[index], 0);
      const range = lane.spans ? null : fitted(lane, data.length_s);
      layout["yaxis" + suffix] = axis({ domain: [low / total, high / total], anchor: "x", title: { text: plain(lane.unit) }, fixedrange: true, ...(range ? { range } : {}) });
      layout.annotations.push({ text: "<b>" + plain(lane.title) + "</b>" + legend(lane, range, data.length_s), x: 0, xref: "paper", y: high / total, yref: "paper", showarrow: false,
        xanchor: "left", yanchor: "bottom", align: "left", font: { color: colour("text") } });
      if (lane.limit && isIn(lane.limit, range)) {
        traces.push({ x: [-0.02 * data.length_s, 1.02 * data.length_s], y: [lane.limit, lane.limit], yaxis: "y" + suffix, mode: "lines",
          name: plain(lane.limit_name), line: { color: colour("muted"), dash: "dot", width: 1 }, hoverinfo: "name+y" });
      }
      if (lane.spans) spans(lane, suffix, traces, layout); else series(lane, suffix, traces); // above the line of the limit
      top = low;
    });
    layout.xaxis = axis({ range: [-0.02 * data.length_s, 1.02 * data.length_s], title: { text: "seconds since the window began" + (narrow() ? "" : "; dashed: start and end of the window") },
      anchor: data.lanes.length > 1 ? "y" + data.lanes.length : "y", showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: colour("muted") });
    const upright = (x0, x1, more) => layout.shapes.push({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below", ...more });
    data.findings.filter((each) => !each.whole).forEach((each) => upright(each.from_s, each.to_s,
      { fillcolor: colour(each.severity === "note" ? "muted" : each.severity), opacity: each.severity === "note" ? 0.06 : 0.13, line: { width: 0 } }));
    // In each lane alone: the titles between the lanes stay legible.
    data.lanes.forEach((_, index) => [0, data.length_s].forEach((x) => layout.shapes.push({ type: "line", xref: "x", yref: "y" + (index ? index + 1 : "") + " domain",
      x0: x, x1: x, y0: 0, y1: 1, line: { color: colour("text"), width: 1, dash: "dash" } })));
    layout.height = total + layout.margin.t + layout.margin.b;
    return [traces, layout];
  }

  // The range of the values inside the window, and of a near limit; a distant limit would flatten the curve.
  function fitted(lane, length_s) {
    const seen = lane.series.flatMap((each) => each.y.filter((y, place) => y !== null && each.x[place] <= length_s
      && (each.x[place] >= 0 || (each.shape === "step" && each.x[place + 1] > 0))));
    if (!seen.length) return null;
    let low = Math.min(...seen), high = Math.max(...seen);
    const span = Math.max(high - low, 0.02 * Math.abs(high));
    if (lane.limit && isIn(lane.limit, [low - 0.5 * span, high + 0.5 * span])) [low, high] = [Math.min(low, lane.limit), Math.max(high, lane.limit)];
    const room = 0.08 * Math.max(high - low, span);
    return [low - room, high + room];
  }
  const isIn = (value, range) => range !== null && value >= range[0] && value <= range[1];
  const limitName = (lane) => plain(lane.limit_name + " " + lane.limit + " " + lane.unit);

  const roleOf = (each, index) => (each.name === "inside a finding" ? "reject" : ROLES[index % ROLES.length]);
  // The parts of a line between two readings, or the points; a line outside the window is invisible before a zoom.
  const parts = (each) => each.x.flatMap((x, place) => (each.y[place] === null ? [] : each.shape === "points" ? [[x, x]]
    : (each.y[place + 1] ?? null) === null ? [] : [[x, each.x[place + 1]]]));
  const legend = (lane, range, length_s) => {
    const named = (role, text) => '<span style="color:' + colour(role) + '">' + text + "</span>";
    const names = (lane.series || []).flatMap((each, index) => {
      const drawn = parts(each), isOutside = !drawn.some(([from, to]) => to >= 0 && from <= length_s);
      return drawn.length ? [named(roleOf(each, index), (each.shape === "points" ? "● " : "━ ") + plain(each.name) + (isOutside ? ", outside the window" : ""))] : [];
    });
    const limit = lane.limit ? [named("muted", isIn(lane.limit, range) ? "┄ " + limitName(lane) : limitName(lane) + (range && lane.limit > range[1] ? ", above" : ""))] : [];
    if (narrow()) return limit.map((each) => "  " + each).join("") + (names.length ? "<br>" + names.join("  ") : ""); // each line fits
    return [...names, ...limit].map((each) => "  " + each).join("");
  };

  function series(lane, suffix, traces) {
    lane.series.forEach((each, index) => traces.push({
      x: each.x, y: each.y, yaxis: "y" + suffix, name: plain(each.name), hovertemplate: "%{y} " + plain(lane.unit) + "<extra>" + plain(each.name) + "</extra>",
      mode: each.shape === "points" ? "markers" : "lines", connectgaps: false,
      line: { color: colour(roleOf(each, index)), width: 1.5, shape: each.shape === "step" ? "hv" : "linear" },
      marker: { color: colour(roleOf(each, index)), size: 3, symbol: each.name === "inside a finding" ? "x" : "circle" },
    }));
  }

  function spans(lane, suffix, traces, layout) {
    lane.spans.forEach((each, row) => {
      const x = [], y = [];
      each.at.forEach(([from, to]) => { x.push(from, to, null); y.push(row, row, null); });
      traces.push({ x, y, yaxis: "y" + suffix, mode: "lines", line: { color: colour(each.role), width: 10 }, connectgaps: false, hovertemplate: plain(each.name) + "<extra></extra>" });
    });
    Object.assign(layout["yaxis" + suffix], { range: [lane.spans.length - 0.4, narrow() ? -0.75 : -0.6], showgrid: false, zeroline: false, title: { text: "" },
      tickvals: narrow() ? [] : lane.spans.map((_, row) => row), ticktext: lane.spans.map((each) => plain(each.name)) });
    const noted = { showarrow: false, xanchor: "left", yanchor: "middle", yref: "y" + suffix };
    if (!narrow()) lane.spans.forEach((each, row) => each.note && layout.annotations.push({ ...noted, text: plain(each.note), x: 0, xshift: 6, y: row,
      font: { color: colour("muted"), size: 11 } }));
    else lane.spans.forEach((each, row) => layout.annotations.push({ text: plain(each.name + (each.note ? ", " + each.note : "")), x: 0, xref: "paper", xanchor: "left", xshift: 8, y: row - 0.42,
      yref: "y" + suffix, yanchor: "middle", showarrow: false, font: { color: colour("text"), size: 10 } }));
  }

  const small = (x, y) => ({ ...look(), barmode: "overlay", height: 350, margin: { l: 60, r: 10, t: 60, b: 45 }, legend: { orientation: "h", y: 1, yanchor: "bottom", itemsizing: "constant" },
    xaxis: axis({ title: { text: x } }), yaxis: axis({ title: { text: y } }) });
  // Steps instead of bars keep the series behind visible.  The highest bin of each series is 1; hovering shows the counts.
  const histograms = (all, unit) => [all.map((each, index) => ({ x: each.x, y: each.y, name: plain(each.name), customdata: each.counts, mode: "lines",
    line: { shape: "hvh", width: 1.5, color: colour(ROLES[index % ROLES.length]), dash: ["solid", "dash", "dot"][Math.floor(index / ROLES.length) % 3] },
    fill: all.length < 4 ? "tozeroy" : "none", fillcolor: colour(ROLES[index % ROLES.length]) + "40",
    hovertemplate: "%{x} ms: %{customdata} iterations<extra>" + plain(each.name) + "</extra>" })),
  { ...small(unit, "iterations, the most in a bin = 1"), showlegend: true }];
  const cut = (data) => ", " + data.percent[0] + "th to " + data.percent[1] + "th percentile";
  const overlay = (data, which) => histograms(data[which], (which === "measured" ? "ms as measured" : "ms at " + Math.round(data.clock_mhz) + " MHz") + cut(data));

  // The iterations over time and, to the right, the distribution of the times, on one axis.
  function times(data) {
    const [counted] = histograms(data.histograms, ""), bins = data.histograms[0].x, half = 0.5 * (bins[1] - bins[0]);
    const over = data.drift.map((each, index) => ({ x: each.x, y: each.y, name: plain(each.name), mode: "markers", marker: { color: colour(ROLES[index % 2]), size: 3 },
      hovertemplate: "%{y} ms at %{x} s<extra>" + plain(each.name) + "</extra>" }));
    const beside = counted.map((each) => ({ ...each, x: each.y, y: each.x, xaxis: "x2", showlegend: false, line: { ...each.line, shape: "vhv" },
      fill: each.fill === "none" ? "none" : "tozerox", hovertemplate: each.hovertemplate.replace("%{x}", "%{y}") }));
    const layout = { ...small("seconds since the window began", "ms" + (narrow() ? "" : cut(data))), showlegend: true };
    layout.yaxis.range = [bins[0] - 2 * half, bins[bins.length - 1] + 2 * half];
    layout.xaxis.domain = [0, 0.7];
    layout.xaxis2 = axis({ domain: [0.73, 1], title: { text: "iterations" }, showticklabels: false, showgrid: false, rangemode: "tozero" });
    if (narrow()) layout.margin = { ...layout.margin, l: 50, r: 4 };
    return [[...over, ...beside], layout];
  }

  function draw() {
    const put = (name, make) => document.querySelectorAll("[data-" + name + "]").forEach((place) => {
      const ranges = place.layout ? { range: place.layout.xaxis.range.slice(), autorange: false } : null;
      const [traces, layout] = make(place.dataset[name]);
      if (ranges) Object.assign(layout.xaxis, ranges);
      if (paper) Object.assign(layout, { width: place.parentElement.classList.contains("pair") ? PAPER_PX / 2 - 8 : PAPER_PX, autosize: false });
      place.style.height = layout.height + "px"; // Plotly loses the height when the browser window is resized
      window.Plotly.react(place, traces, layout, { ...config, responsive: !paper, displayModeBar: narrow() ? false : "hover" }); // cut off if narrow
    });
    put("timeline", (index) => timeline(drawn[Number(index)].timeline));
    put("times", (index) => times(drawn[Number(index)].times));
    put("overlaid", (which) => overlay(overlaid, which));
  }

  function zoom(button) {
    const index = button.dataset.zoom, data = drawn[Number(index)].timeline;
    let from = Number(button.dataset.from), to = Number(button.dataset.to);
    if ("relative" in button.dataset) { from *= data.length_s; to *= data.length_s; } else {
      const room = Math.max(0.2 * (to - from), 0.01); from -= room; to += room;
    }
    window.Plotly.relayout(document.querySelector('[data-timeline="' + index + '"]'), { "xaxis.range": [from, to] });
  }

  // Keyboard equivalents of drag and double-click.
  function move(event) {
    const place = event.currentTarget, data = drawn[Number(place.dataset.timeline)].timeline;
    if (!window.Plotly || event.ctrlKey || event.altKey || event.metaKey) return;
    const [from, to] = place.layout.xaxis.range.map(Number), step = 0.2 * (to - from);
    const moved = { ArrowLeft: [from - step, to - step], ArrowRight: [from + step, to + step], "+": [from + step, to - step], "=": [from + step, to - step],
      "-": [from - step / 0.6, to + step / 0.6], Home: [-0.02 * data.length_s, 1.02 * data.length_s] }[event.key];
    if (!moved || moved[1] - moved[0] < 1e-6) return;
    event.preventDefault();
    window.Plotly.relayout(place, { "xaxis.range": moved });
  }

  document.querySelectorAll("[data-timeline]").forEach((place) => place.addEventListener("keydown", move));
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => window.Plotly && zoom(button)));
  document.querySelectorAll("[data-save]").forEach((button) => button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytesOf(textOf("gpuwatch-evidence").trim().split("\n")[Number(button.dataset.save)])]));
    link.download = "evidence-" + (Number(button.dataset.save) + 1) + ".capsule";
    link.click();
  }));
  let drawnNarrow = innerWidth < 600;
  addEventListener("resize", () => { // a narrow layout places the names elsewhere
    if (drawnNarrow !== innerWidth < 600 && window.Plotly && !paper) { drawnNarrow = innerWidth < 600; draw(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.Plotly && draw());
  // Paper is light, narrow, and cannot be clicked: redraw the charts before the print style sheet applies.
  let chosen, closed = [];
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme; root.dataset.theme = "light"; paper = true;
    closed = [...document.querySelectorAll("details:not([open]):not(.note)")];
    closed.forEach((each) => { each.open = true; });
    if (window.Plotly) draw();
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    paper = false;
    closed.forEach((each) => { each.open = false; });
    if (window.Plotly) draw();
  });

  start(draw);
})();

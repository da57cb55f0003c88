"use strict";
(() => {
  const root = document.documentElement;
  const textOf = (id) => document.getElementById(id).textContent;
  const bytesOf = (text) => Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const { windows: drawn, overlaid } = JSON.parse(textOf("gpuwatch-drawn"));
  const PAPER_PX = 680; // what A4 and Letter both hold within their margins
  // Plotly reads a few tags and %{…} in its texts: what users named must not become one.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "%\u200b{");
  const short = (text) => (innerWidth >= 600 || paper || text.length < 16 ? text : text.replace(/ \(.*/, "").slice(0, 15) + "…");
  const colour = (role) => getComputedStyle(root).getPropertyValue("--" + role).trim();
  const ROLES = ["first", "second", "third", "fourth", "fifth", "sixth"];
  let paper = false;
  const config = { displaylogo: false, responsive: true, showSendToCloud: false, topojsonURL: "", modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  const look = () => ({
    paper_bgcolor: colour("back"), plot_bgcolor: colour("back"), font: { color: colour("text"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") } },
  });
  const axis = (more) => ({ gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true, ...more });

  function timeline(data) {
    const traces = [], layout = { ...look(), showlegend: false, margin: { l: 70, r: 20, t: 30, b: 40 }, shapes: [], annotations: [], hovermode: "x" };
    const weights = data.lanes.map((lane) => (lane.spans ? 0.35 + 0.22 * lane.spans.length : 1.4));
    const total = weights.reduce((sum, each) => sum + each, 0), gap = 0.05 * Math.min(1, 6 / data.lanes.length);
    let top = 1, height = 90;
    data.lanes.forEach((lane, index) => {
      const suffix = index ? String(index + 1) : "", bottom = top - weights[index] / total;
      height += weights[index] * 105;
      const range = [Math.max(bottom, 0), Math.min(top - gap, 1)];
      layout["yaxis" + suffix] = axis({ domain: range, anchor: "x", title: { text: plain(lane.unit) }, fixedrange: true });
      layout.annotations.push({ text: "<b>" + plain(lane.title) + "</b>" + legend(lane), x: 0, xref: "paper", y: range[1], yref: "paper", showarrow: false,
        xanchor: "left", yanchor: "bottom", font: { color: colour("text") } });
      if (lane.spans) spans(lane, suffix, traces, layout); else series(lane, suffix, traces);
      if (lane.limit) traces.push({ x: [-2, data.length_s + 2], y: [lane.limit, lane.limit], yaxis: "y" + suffix, mode: "lines",
        name: plain(lane.limit_name), line: { color: colour("muted"), dash: "dot", width: 1 }, hoverinfo: "name+y" });
      top = bottom;
    });
    layout.xaxis = axis({ range: [-0.02 * data.length_s, 1.02 * data.length_s], title: { text: "seconds since the window began" },
      anchor: data.lanes.length > 1 ? "y" + data.lanes.length : "y", showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: colour("muted") });
    const upright = (x0, x1, more) => layout.shapes.push({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below", ...more });
    data.findings.filter((each) => !each.whole).forEach((each) => upright(each.from_s, each.to_s,
      { fillcolor: colour(each.severity === "note" ? "muted" : each.severity), opacity: each.severity === "note" ? 0.06 : 0.13, line: { width: 0 } }));
    [0, data.length_s].forEach((x) => layout.shapes.push({ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1,
      line: { color: colour("text"), width: 1, dash: "dash" } }));
    layout.height = height;
    return [traces, layout];
  }

  const roleOf = (each, index) => (each.name === "inside a finding" ? "reject" : ROLES[index % ROLES.length]);
  const legend = (lane) => (lane.series || []).map((each, index) =>
    '  <span style="color:' + colour(roleOf(each, index)) + '">■ ' + plain(each.name) + "</span>").join("");

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
    Object.assign(layout["yaxis" + suffix], { range: [lane.spans.length - 0.4, -0.6], showgrid: false, zeroline: false, title: { text: "" },
      tickvals: lane.spans.map((_, row) => row), ticktext: lane.spans.map((each) => plain(short(each.name))) });
  }

  const small = (x, y) => ({ ...look(), barmode: "overlay", height: 350, margin: { l: 60, r: 10, t: 60, b: 45 }, legend: { orientation: "h", y: 1, yanchor: "bottom", itemsizing: "constant" },
    xaxis: axis({ title: { text: x } }), yaxis: axis({ title: { text: y } }) });
  // Steps and not bars: those behind stay seen.  The highest bin of each is 1, the numbers stand in the hover.
  const histograms = (all, unit) => [all.map((each, index) => ({ x: each.x, y: each.y, name: plain(each.name), customdata: each.counts, mode: "lines",
    line: { shape: "hvh", width: 1.5, color: colour(ROLES[index % ROLES.length]), dash: ["solid", "dash", "dot"][Math.floor(index / ROLES.length) % 3] },
    fill: all.length < 4 ? "tozeroy" : "none", fillcolor: colour(ROLES[index % ROLES.length]) + "40",
    hovertemplate: "%{x} ms: %{customdata} iterations<extra>" + plain(each.name) + "</extra>" })),
  { ...small(unit, "iterations, the most in a bin = 1"), showlegend: true }];
  const distribution = (data) => histograms(data.histograms, "ms (99 % of them)");
  const overlay = (data, which) => histograms(data[which], which === "measured" ? "ms as measured (99 % of them)"
    : "ms at " + Math.round(data.clock_mhz) + " MHz (99 % of them)");
  const drift = (data) => [data.drift.map((each, index) => ({ x: each.x, y: each.y, name: plain(each.name), mode: "markers",
    marker: { color: colour(ROLES[index % 2]), size: 3 } })), { ...small("seconds since the window began", "ms"), showlegend: true }];

  function draw() {
    const put = (name, make) => document.querySelectorAll("[data-" + name + "]").forEach((place) => {
      const ranges = place.layout ? { range: place.layout.xaxis.range.slice(), autorange: false } : null;
      const [traces, layout] = make(place.dataset[name]);
      if (ranges) Object.assign(layout.xaxis, ranges);
      if (paper) Object.assign(layout, { width: place.parentElement.classList.contains("pair") ? PAPER_PX / 2 - 8 : PAPER_PX, autosize: false });
      place.style.height = layout.height + "px"; // Plotly forgets its own when the window's size changes
      window.Plotly.react(place, traces, layout, { ...config, responsive: !paper });
    });
    put("timeline", (index) => timeline(drawn[Number(index)].timeline));
    put("distribution", (index) => distribution(drawn[Number(index)].times));
    put("drift", (index) => drift(drawn[Number(index)].times));
    put("overlaid", (which) => overlay(overlaid, which));
  }

  function toggle() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.getElementById("theme").setAttribute("aria-pressed", String(!dark));
    if (window.Plotly) draw();
  }

  function zoom(button) {
    const index = button.dataset.zoom, data = drawn[Number(index)].timeline;
    let from = Number(button.dataset.from), to = Number(button.dataset.to);
    if ("relative" in button.dataset) { from *= data.length_s; to *= data.length_s; } else {
      const room = Math.max(0.2 * (to - from), 0.01); from -= room; to += room;
    }
    window.Plotly.relayout(document.querySelector('[data-timeline="' + index + '"]'), { "xaxis.range": [from, to] });
  }

  // The keyboard's way to what drag and double-click do.
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
  document.getElementById("theme").addEventListener("click", toggle);
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => window.Plotly && zoom(button)));
  document.querySelectorAll("[data-save]").forEach((button) => button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytesOf(textOf("gpuwatch-evidence").trim().split("\n")[Number(button.dataset.save)])]));
    link.download = "evidence-" + (Number(button.dataset.save) + 1) + ".capsule";
    link.click();
  }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.Plotly && draw());
  // Paper is light, narrow, and cannot be clicked; the pictures are drawn before the style sheet for print is in force.
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

  const unpacked = new Blob([bytesOf(textOf("gpuwatch-plotly"))]).stream().pipeThrough(new DecompressionStream("gzip"));
  new Response(unpacked).text().then((source) => {
    const script = document.createElement("script");
    script.nonce = document.querySelector("meta[data-nonce]").dataset.nonce;
    script.textContent = source;
    document.head.append(script);
    draw();
    root.dataset.drawn = "yes";
  });
})();

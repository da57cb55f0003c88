(() => {
  const { textOf, plain, colour, axis, look, start } = page;
  const plots = JSON.parse(textOf("gpuwatch-drawn"));
  const side = (index) => ({ name: "AB"[index], marker: { color: colour(["first", "second"][index]), size: 10 }, line: { color: colour(["first", "second"][index]) } });
  const pad = (plot) => Math.max(0.02, 0.15 * Math.abs(plot.ratio - 1), 2 * plot.ends[0], 2 * plot.ends[1]);
  const makers = {
    ratio: (plot) => [[{ x: [plot.ratio], y: [""], mode: "markers", marker: { color: colour("text"), size: 9 }, showlegend: false,
      error_x: { type: "data", symmetric: false, array: [plot.ends[1]], arrayminus: [plot.ends[0]], color: colour("text") } }],
      { height: 190, xaxis: axis({ range: [Math.min(1, plot.ratio) - pad(plot), Math.max(1, plot.ratio) + pad(plot)] }), yaxis: axis({}),
        shapes: [{ type: "line", x0: 1, x1: 1, y0: 0, y1: 1, yref: "paper", line: { color: colour("muted"), dash: "dash" } }] }],
    bars: (plot) => [plot.values.map((values, index) => ({ ...side(index), type: "bar", orientation: "h", y: plot.names.map(plain), x: values })),
      { height: 120 + 34 * plot.names.length, barmode: "group", xaxis: axis({ title: { text: plot.unit } }), yaxis: axis({ autorange: "reversed" }) }],
    roofline: (plot) => {
      const xs = plot.sides.map((each) => each.x), from = Math.min(...xs) / 10, to = Math.max(...xs, ...plot.sides.map((each) => (each.roof || 0) / plot.memory)) * 3;
      const line = Array.from({ length: 60 }, (_, index) => from * (to / from) ** (index / 59));
      const roofs = plot.sides.map((each, index) => ({ x: line, y: line.map((x) => Math.min(x * plot.memory, each.roof || Infinity)), mode: "lines",
        line: { color: side(index).line.color, dash: index ? "dot" : "solid", width: 1 }, name: "roof " + "AB"[index], hoverinfo: "skip" }));
      return [[...roofs, ...plot.sides.map((each, index) => ({ ...side(index), x: [each.x], y: [each.y], mode: "markers" }))],
        { height: 380, xaxis: axis({ type: "log", title: { text: "operations per byte" } }), yaxis: axis({ type: "log", title: { text: "operations a second" } }) }];
    },
  };
  function draw() {
    document.querySelectorAll("[data-plot]").forEach((place, index) => {
      const [traces, layout] = makers[plots[index].kind](plots[index]);
      Object.assign(layout, { title: { text: plain(plots[index].title), font: { size: 13 }, automargin: true }, margin: { l: 10, r: 15, t: 60, b: 45 },
        ...look(),
        legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 } });
      place.style.minHeight = place.style.height = layout.height + "px";
      window.Plotly.react(place, traces, layout, { displaylogo: false, responsive: true, displayModeBar: false });
    });
  }
  start(draw);
})();

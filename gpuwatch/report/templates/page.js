"use strict";
// Shared by every page with charts: texts, colours, the button for light and dark, and the unpacking of Plotly.
const page = (() => {
  const root = document.documentElement;
  const textOf = (id) => document.getElementById(id).textContent;
  const bytesOf = (text) => Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  // Plotly interprets a few tags and %{…} in texts: escape them in names chosen by users.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "%\u200b{");
  const colour = (role) => getComputedStyle(root).getPropertyValue("--" + role).trim();
  const axis = (more) => ({ gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true, ...more });
  const look = () => ({ paper_bgcolor: colour("back"), plot_bgcolor: colour("back"), font: { color: colour("text"), family: "system-ui, sans-serif", size: 12 } });

  function start(draw) {
    document.getElementById("theme").addEventListener("click", (event) => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      event.currentTarget.setAttribute("aria-pressed", String(!dark));
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
  }
  return { root, textOf, bytesOf, plain, colour, axis, look, start };
})();

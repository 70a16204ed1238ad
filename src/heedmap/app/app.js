/* The pages of results in their frames: as tall as what is in them, and as dark as the app.

Run once, by the app's heading (`element`), which passes on which place of a result is to be explained.
*/
const frames = () => [...document.querySelectorAll(".page iframe")];
const tell = (frame) => {
  const dark = document.body.classList.contains("dark");
  const { folder } = frame.parentElement.dataset;
  frame.contentWindow?.postMessage({ heedmap: "look", dark, room: window.innerHeight, explains: true, folder }, "*");
};
const number = (text) => (/^\d+$/.test(text) ? String(text) : "");
const reveal = (element) => { // on a phone the result is below the form
  const result = element?.closest("[role=tabpanel]")?.querySelector(".result");
  if (window.innerWidth < 800) result?.scrollIntoView({ behavior: "smooth" });
};
const seen = new WeakSet();
window.addEventListener("message", ({ source, data }) => {
  const frame = frames().find((one) => one.contentWindow === source);
  if (frame && data?.heedmap === "height" && Number.isFinite(data.height)) {
    const height = `${Math.min(Math.max(Math.ceil(data.height), 100), 30000)}px`;
    if (frame.style.height !== height) frame.style.height = height;
    tell(frame);
    if (!seen.has(frame)) reveal(frame);
    seen.add(frame);
  }
  if (frame && data?.heedmap === "explain") {
    const { word, at, layer } = data;
    const [cell, head, step] = [data.cell, data.head, data.step].map(number);
    const run = cell ? `/cells/${cell.padStart(3, "0")}` : "";
    trigger("explain", { name: frame.parentElement.dataset.result + run, word, at, layer, head, step });
  }
});
document.addEventListener("click", ({ target }) => reveal(target.closest("button.primary")));
window.addEventListener("resize", () => frames().forEach(tell));
new MutationObserver(() => frames().forEach(tell)).observe(document.body, { attributeFilter: ["class"] });

/* The pages of results, in their frames: as tall as what is in them, and as dark as the app.

A page has no origin of its own and no way to the app but two messages: its height, of which one
number is read; and which number shall be taken apart, which is written into the fields of "Explain"
and starts nothing. Of which result is read from the frame's address, not from what it says.
*/
(() => {
  const frames = () => [...document.querySelectorAll(".page iframe")];
  // Of the window's height only what a turn of it changes: on a phone it changes while one scrolls.
  let [width, room] = [window.innerWidth, window.innerHeight];
  const look = () => {
    if (width !== window.innerWidth) [width, room] = [window.innerWidth, window.innerHeight];
    return { heedmap: "look", dark: document.body.classList.contains("dark"), room };
  };
  const nameOf = (frame) => frame.getAttribute("src")?.match(/\/results\/([^/]+)\/page$/)?.[1];
  const tell = (frame) => {
    const explains = nameOf(frame) !== undefined;
    frame.contentWindow?.postMessage({ ...look(), explains }, "*");
  };
  const FIELDS = ["cell", "word", "at", "layer", "head", "step"]; // behind the result, in order
  const fill = (name, said) => {
    const panel = document.getElementById("explain");
    const boxes = [...(panel?.querySelectorAll("textarea, input[type=text]") ?? [])];
    // In the order in which they are seen: result, word, pixel; layer, head, step, cell.
    const values = [name, said.word, said.at, said.layer, said.head, said.step, said.cell];
    if (boxes.length !== values.length) return false;
    boxes.forEach((box, n) => {
      box.value = values[n];
      box.dispatchEvent(new Event("input", { bubbles: true }));
    });
    const button = [...panel.querySelectorAll("button")].find((one) => one.textContent.trim() === "Take it apart");
    button?.focus({ preventScroll: true });
    button?.scrollIntoView({ block: "center" });
    return true;
  };
  const explain = (frame, data) => {
    const said = {};
    for (const field of FIELDS) {
      if (typeof data[field] !== "string" || data[field].length > 2000) return;
      said[field] = data[field];
    }
    const name = decodeURIComponent(nameOf(frame));
    const tab = [...document.querySelectorAll("[role=tab]")].find((one) => one.textContent.trim() === "Explain");
    tab?.click();
    let tries = 60; // a tab is built when it is first seen
    const again = () => fill(name, said) || (tries-- && setTimeout(again, 50));
    again();
  };
  window.addEventListener("message", ({ source, origin, data: said }) => {
    const frame = frames().find((one) => one.contentWindow === source);
    if (!frame || origin !== "null") return;
    // Only where somebody has just clicked or pressed a key: a page by itself moves nothing.
    const clicked = navigator.userActivation?.isActive && document.activeElement === frame;
    if (said?.heedmap === "explain" && clicked && nameOf(frame)) explain(frame, said);
    if (said?.heedmap !== "height") return;
    if (!Number.isFinite(said.height)) return;
    const height = `${Math.min(Math.max(Math.ceil(said.height), 100), 30000)}px`;
    if (frame.style.height !== height) frame.style.height = height;
    tell(frame);
  });
  const all = () => frames().forEach(tell);
  window.addEventListener("resize", all);
  new MutationObserver(all).observe(document.body, { attributeFilter: ["class"] });
})();

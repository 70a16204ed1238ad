/* The pages of results, in their frames: as tall as what is in them, and as dark as the app.

A page has no origin of its own and no way to the app but this message, of which one number is read.
*/
(() => {
  const frames = () => [...document.querySelectorAll(".page iframe")];
  // Of the window's height only what a turn of it changes: on a phone it changes while one scrolls.
  let [width, room] = [window.innerWidth, window.innerHeight];
  const look = () => {
    if (width !== window.innerWidth) [width, room] = [window.innerWidth, window.innerHeight];
    return { heedmap: "look", dark: document.body.classList.contains("dark"), room };
  };
  const tell = (frame) => frame.contentWindow?.postMessage(look(), "*");
  window.addEventListener("message", ({ source, origin, data: said }) => {
    const frame = frames().find((one) => one.contentWindow === source);
    if (!frame || origin !== "null" || said?.heedmap !== "height") return;
    if (!Number.isFinite(said.height)) return;
    const height = `${Math.min(Math.max(Math.ceil(said.height), 100), 30000)}px`;
    if (frame.style.height !== height) frame.style.height = height;
    tell(frame);
  });
  const all = () => frames().forEach(tell);
  window.addEventListener("resize", all);
  new MutationObserver(all).observe(document.body, { attributeFilter: ["class"] });
})();

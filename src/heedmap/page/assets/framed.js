/* Within a frame: how tall the page is, for what it is in; and how that looks, for the page. */

const darkRules = [...document.styleSheets].flatMap((sheet) =>
  [...sheet.cssRules].filter((rule) => rule.media?.mediaText.includes("prefers-color-scheme: dark")),
);

/** Follow what the page is in: its colours, and the height of its window in place of the frame's. */
function lookAs({ dark, room, explains }) {
  const root = document.documentElement;
  for (const rule of darkRules) rule.media.mediaText = dark ? "all" : "not all";
  const here = document.getElementById("here"); // an explanation's page has none
  if (here) here.hidden = explains !== true;
  root.style.colorScheme = dark ? "dark" : "light";
  root.style.setProperty("--window", `${Math.min(Math.max(room, 400), 2000)}px`);
}

/** Tell the height, whenever it changes. Nothing else is listened to. */
function bindFrame() {
  if (parent === window) return;
  let told = 0;
  const tell = () => {
    const height = Math.ceil(document.body.getBoundingClientRect().height);
    if (height !== told) parent.postMessage({ heedmap: "height", height: (told = height) }, "*");
  };
  new ResizeObserver(tell).observe(document.body);
  addEventListener("message", ({ source, data: said }) => {
    if (source !== parent || said?.heedmap !== "look") return;
    if (typeof said.dark !== "boolean" || !Number.isFinite(said.room)) return;
    lookAs(said);
    tell(); // out of sight nothing is observed
  });
  tell();
}

"use strict";
/* Elements of a page, its tables and commands, texts of numbers, and the frame around the page. */

const dom = (() => {
  const $ = (id) => document.getElementById(id);

  /** Make an element. Strings become properties, attributes or text, never markup.
      Options besides those: `dataset`, `on` (listeners by event), `vars` (CSS variables). */
  function make(tag, { dataset, on, vars, ...rest } = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(rest)) {
      if (name in element && name !== "role") element[name] = value;
      else element.setAttribute(name, value);
    }
    Object.assign(element.dataset, dataset);
    for (const [name, act] of Object.entries(on ?? {})) element.addEventListener(name, act);
    for (const [name, value] of Object.entries(vars ?? {})) element.style.setProperty(name, value);
    element.append(...children);
    return element;
  }

  function makeSvg(tag, attributes = {}) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  /** Make a table; the first cell of each row is its heading. Cells are texts or elements. */
  function table(caption, heads, rows) {
    const head = (scope, cell) => (cell ? make("th", { scope }, cell) : make("td"));
    const body = rows.map(([first, ...cells]) =>
      make("tr", {}, head("row", first), ...cells.map((cell) => make("td", { dir: "auto" }, cell))),
    );
    return make(
      "table",
      {},
      ...(caption ? [make("caption", {}, caption)] : []),
      ...(heads.length ? [make("thead", {}, make("tr", {}, ...heads.map((cell) => head("col", cell))))] : []),
      make("tbody", {}, ...body),
    );
  }

  const status = { text: "", timer: 0 };

  /** Tell screen readers, at most twice a second; the last text counts. */
  function announce(text) {
    status.text = text;
    status.timer ||= setTimeout(() => {
      status.timer = 0;
      $("said").textContent = status.text;
    }, 500);
  }

  /** Copy the text of a block to the clipboard, or select it; return whether it was copied. */
  async function copy(block) {
    try {
      await navigator.clipboard.writeText(block.textContent);
      return true;
    } catch { // plain HTTP and frames without permission have no clipboard API
      getSelection().selectAllChildren(block);
      return document.execCommand("copy");
    }
  }

  /** Make a block with a command and a button that copies it: {element, set(text)}. */
  function command(name) {
    const block = make("pre", { tabIndex: 0, role: "region", "aria-label": name });
    const button = make("button", { type: "button", textContent: "Copy", "aria-label": `Copy: ${name}` });
    button.addEventListener("click", async () => {
      const done = await copy(block);
      if (done) button.textContent = "Copied";
      announce(done ? "Copied." : "Selected: copy it with the keyboard.");
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    const set = (text) => { // lines break before options
      if (block.textContent !== text) block.replaceChildren(...text.split(/(?= --)/).map((part) => make("span", {}, part)));
    };
    return { element: make("div", { className: "code" }, block, button), set };
  }

  const number = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString().replace("-", "−"));
  const percent = (part) => `${Math.round(part * 100)}\u00a0%`;

  /** Report the page's height to the window around its frame, and take over that window's looks. */
  function bindFrame() {
    if (parent === window) return;
    const darkRules = [...document.styleSheets].flatMap((sheet) =>
      [...sheet.cssRules].filter((rule) => rule.media?.mediaText.includes("prefers-color-scheme: dark")),
    );
    let reported = 0;
    const report = () => {
      const height = Math.ceil(document.body.getBoundingClientRect().height);
      if (height !== reported) parent.postMessage({ heedmap: "height", height: (reported = height) }, "*");
    };
    new ResizeObserver(report).observe(document.body);
    addEventListener("message", ({ source, data }) => {
      if (source !== parent || data?.heedmap !== "look") return;
      if (typeof data.dark !== "boolean" || !Number.isFinite(data.room)) return;
      for (const rule of darkRules) rule.media.mediaText = data.dark ? "all" : "not all";
      document.documentElement.style.colorScheme = data.dark ? "dark" : "light";
      document.documentElement.style.setProperty("--window", `${Math.min(Math.max(data.room, 400), 2000)}px`);
      if ($("here")) $("here").hidden = data.explains !== true;
      report(); // a frame out of sight observes nothing
    });
    report();
  }

  return { $, make, makeSvg, table, announce, command, number, percent, bindFrame };
})();

/* The results, to open again, rename, delete, take along and compare; `element` is where they go.

What somebody wrote becomes text alone; each result is asked for by its name.
*/
const FACES = 4; // pictures that stand for a grid
const FORMATS = ["png", "svg", "pdf"];
const SHORT = { dateStyle: "medium", timeStyle: "short" };
const made = (tag, properties = {}, ...inner) => {
  const one = Object.assign(document.createElement(tag), properties);
  one.append(...inner);
  return one;
};
const chosen = new Set();
const head = made("p", { className: "head" });
const said = made("p", { className: "said" });
said.setAttribute("role", "status");
const bar = made("div", { className: "bar", hidden: true });
const list = made("ul", { className: "results" });
const viewer = made("section", { className: "viewer", hidden: true });
element.replaceChildren(said, viewer, head, bar, list);

const addressOf = (name, what) => `./results/${encodeURIComponent(name)}${what}`;

/** Ask the server; what it refuses it says in one sentence, which is shown. */
async function ask(address, options) {
  try {
    const answer = await fetch(address, options);
    if (answer.ok) return answer;
    tell(await answer.text(), true);
  } catch {
    tell("The server does not answer: it may be gone.", true);
  }
  return null;
}

function tell(text, isTrouble = false) {
  said.textContent = text;
  said.classList.toggle("trouble", isTrouble);
  said.setAttribute("role", isTrouble ? "alert" : "status");
}

const post = (name, what, body) =>
  ask(addressOf(name, what), { method: "POST", body: JSON.stringify(body ?? {}) });

let asked = 0;
let listed = "";
/** Read the list again. By itself it changes nothing that is the same, nor takes a question away. */
async function load(isDue = true) {
  const mine = ++asked;
  const answer = await ask("./results");
  const text = await answer?.text();
  if (!text || mine !== asked) return;
  if (!isDue && (text === listed || list.querySelector(".asking"))) return;
  listed = text;
  const { results, all } = JSON.parse(text);
  const names = new Set(results.map((one) => one.name));
  for (const name of [...chosen]) if (!names.has(name)) chosen.delete(name);
  const count = all === 1 ? "1 result" : `${all} results`;
  head.textContent = !all
    ? "Nothing was drawn yet: what you draw stays here, also after the page is closed."
    : results.length < all
      ? `${count}, of which the latest ${results.length} are shown.`
      : `${count}, the latest first.`;
  list.replaceChildren(...results.map(card));
  showBar();
}

function button(text, act, className = "") {
  return made("button", { type: "button", textContent: text, onclick: act, className });
}

/** What stands for a result: its picture; of a grid those of its first edits. */
function pictures(one) {
  const cells = [...Array(Math.min(one.cells, FACES)).keys()].map((n) => `?cell=${n + 1}`);
  return (cells.length ? cells : [""]).map((which) =>
    made("img", { src: addressOf(one.name, `/picture${which}`), alt: "", loading: "lazy" }),
  );
}

function card(one) {
  const face = made("button", { type: "button", className: "face", onclick: () => open(one) });
  face.setAttribute("aria-label", `Open ${one.name}`);
  face.append(...pictures(one));
  face.classList.toggle("several", face.childElementCount > 1);
  const box = made("input", { type: "checkbox", checked: chosen.has(one.name) });
  box.setAttribute("aria-label", `Choose ${one.name}`);
  box.onchange = () => {
    box.checked ? chosen.add(one.name) : chosen.delete(one.name);
    showBar();
  };
  const name = made("label", { className: "name" });
  if (["run", "edit"].includes(one.kind)) name.append(box);
  name.append(made("bdi", { textContent: one.name }));
  const when = new Date(one.made * 1000);
  const line = made("p", { className: "line", textContent: `${one.made_with} · ` });
  line.append(made("time", { dateTime: when.toISOString(), textContent: when.toLocaleString([], SHORT) }));
  const actions = made("div", { className: "actions" });
  const item = made("li", {}, face, name, made("p", { className: "title" }), line, actions);
  item.querySelector(".title").textContent = one.title;
  usual(one, item);
  return item;
}

function usual(one, item) {
  const zip = made("a", { href: addressOf(one.name, ".zip"), download: "", textContent: "Zip" });
  zip.setAttribute("aria-label", `Download ${one.name} as zip`);
  item.querySelector(".actions").replaceChildren(
    button("Open", () => open(one)),
    button("Rename", () => rename(one, item)),
    button("Delete", () => remove(one, item)),
    zip,
  );
}

/** In the place of a result's buttons; "Keep" and Escape go back to the one that asked. */
function question(one, item, from, asked) {
  const actions = item.querySelector(".actions");
  actions.classList.add("asking");
  function keep() {
    actions.onkeydown = null;
    actions.classList.remove("asking");
    usual(one, item);
    [...actions.children].find((e) => e.textContent === from).focus();
  }
  actions.onkeydown = (event) => {
    if (event.key === "Escape") keep();
  };
  actions.replaceChildren(asked);
  (asked.matches("form") ? asked : actions).append(button("Keep", keep));
}

function rename(one, item) {
  const field = made("input", { type: "text", value: one.name, maxLength: 100 });
  field.setAttribute("aria-label", "New name");
  const form = made("form", {}, field, made("button", { textContent: "Save" }));
  form.onsubmit = async (event) => {
    event.preventDefault();
    const answer = await post(one.name, "/name", { name: field.value });
    if (!answer) return;
    const { name } = await answer.json();
    if (chosen.delete(one.name)) chosen.add(name);
    tell(`It is called ${name} now.`);
    close();
    load();
  };
  question(one, item, "Rename", form);
  field.select();
}

function remove(one, item) {
  const sure = button("Delete for good", async () => {
    if (!(await post(one.name, "/end"))) return;
    chosen.delete(one.name);
    tell(`${one.name} was deleted.`);
    close();
    load();
  }, "danger");
  question(one, item, "Delete", sure);
  sure.focus();
}

function show(title, ...inner) {
  window.dispatchEvent(new CustomEvent("heedmap-opens", { detail: "result" }));
  const top = made("p", { className: "top" }, made("strong", { textContent: title }));
  top.append(...inner.slice(1), button("All results", close));
  viewer.replaceChildren(top, inner[0]);
  if (viewer.hidden) history.pushState({ ...history.state, opened: true }, "");
  see(false);
  viewer.scrollIntoView({ block: "start" });
}

function close() {
  if (!viewer.hidden && history.state?.opened) history.back();
  leave();
}

function leave() {
  viewer.replaceChildren();
  see(true);
}

/** Either the list is seen, or what was opened of it. */
function see(isList) {
  for (const one of [head, list]) one.hidden = !isList;
  bar.hidden = !isList || !chosen.size;
  viewer.hidden = isList;
}

async function open(one) {
  tell("");
  // What was deleted or renamed meanwhile, in another window, is told of here: a frame would be white.
  const answer = await ask(addressOf(one.name, "/page"));
  if (!answer) return load();
  answer.body?.cancel();
  const frame = made("iframe", { src: addressOf(one.name, "/page"), title: "heedmap" });
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.allow = "clipboard-write";
  show(one.title, made("div", { className: "page" }, frame));
}

// --- comparing ---------------------------------------------------------------------------------

const words = made("input", { type: "text", placeholder: "those that all have" });
const scale = made("select");
for (const [value, text] of [
  ["shared", "one scale for all"],
  ["word", "one for each word"],
  ["raw", "from 0 to 1"],
]) scale.append(made("option", { value, textContent: text }));
const count = made("span");
bar.append(
  count,
  made("label", {}, "Words, with commas ", words),
  made("label", {}, "Colours ", scale),
  button("Compare", compare),
  button("Choose none", () => {
    chosen.clear();
    for (const box of list.querySelectorAll("input[type=checkbox]")) box.checked = false;
    showBar();
  }),
);

function showBar() {
  bar.hidden = list.hidden || !chosen.size;
  count.textContent = chosen.size === 1 ? "1 chosen" : `${chosen.size} chosen`;
}

let drawn = null; // the comparison that is open: what was asked for, its picture and its ground

async function compare() {
  const query = new URLSearchParams({ scale: scale.value });
  for (const name of chosen) query.append("run", name);
  for (const word of words.value.split(",")) if (word.trim()) query.append("word", word.trim());
  tell("Comparing …");
  const picture = made("img", { alt: "The results, a row each", className: "sheet" });
  picture.onload = () => URL.revokeObjectURL(picture.src);
  drawn = { query, picture };
  if (!(await draw())) return;
  tell("");
  const links = FORMATS.map((format) => {
    const href = `./comparison?${query}&format=${format}&take=1`;
    return made("a", { href, download: "", textContent: format.toUpperCase() });
  });
  const frame = made("div", { className: "scrolled", tabIndex: 0 }, picture);
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", "The comparison");
  show("Comparison", frame, ...links);
}

/** On the screen it is as dark as the app; what is taken along is for paper. */
async function draw() {
  const mine = drawn;
  const dark = document.body.classList.contains("dark");
  if (mine.dark === dark) return true;
  mine.dark = dark;
  const answer = await ask(`./comparison?${mine.query}${dark ? "&dark=1" : ""}`);
  if (!answer) return false;
  const sheet = await answer.blob();
  if (mine.dark === dark) mine.picture.src = URL.createObjectURL(sheet);
  return true;
}

new MutationObserver(() => drawn?.picture.isConnected && draw()).observe(document.body, {
  attributeFilter: ["class"],
});

// The browser's way back leads from a result to the list, and not out of the app.
window.addEventListener("popstate", () => viewer.hidden || leave());
window.addEventListener("heedmap-opens", ({ detail }) => detail === "file" && close());
new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && load(false)).observe(head);
load();

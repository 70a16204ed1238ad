/* Elements, numbers as text, and what screen readers say. All text goes in as text. */

const $ = (id) => document.getElementById(id);

function make(tag, options = {}, ...children) {
  const { dataset, on, ...rest } = options;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  Object.assign(element.dataset, dataset);
  for (const [name, act] of Object.entries(on || {})) element.addEventListener(name, act);
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** An emptied part keeps the room it had: what is below does not flee from one who points elsewhere. */
function keepRoom(part, empty) {
  part.style.minHeight = empty ? `${part.getBoundingClientRect().height}px` : "";
}

const said = { text: "", timer: 0 };

/** Tell screen readers, at most about twice a second: the last thing said counts. */
function announce(text) {
  said.text = text;
  if (said.timer) return;
  said.timer = setTimeout(() => {
    said.timer = 0;
    $("said").textContent = said.text;
  }, 500);
}

const number = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString().replace("-", "−"));
const percent = (part) => `${Math.round(part * 100)}\u00a0%`;

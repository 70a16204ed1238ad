/* The page of an explanation: it shows explain.json, in the order of the computation.

   Text is always set as text, so that nothing a user typed becomes markup; only numbers are
   written into the SVG of bars. */

const data = JSON.parse(document.getElementById("data").textContent);
const { about, tokens, given, shown } = data;
const [heads, count, dv] = given.value.shape;
const d = given.query.shape[1], channels = given.output.shape[0], head = about.head;
const mine = new Set(about.tokens);
const pads = tokens.filter((token) => token.kind === "pad" && !mine.has(token.position)).map((token) => token.position);
const rows = tokens.filter((token) => !pads.includes(token.position));

// --- numbers

const minus = (text) => text.replace("-", "−");
const digits = (x) => (x === null ? "hidden" : minus(x !== 0 && Math.abs(x) < 1e-6 ? x.toExponential(3) : x.toFixed(8)));
const brief = (x) => (x === null ? "hidden" : minus(x !== 0 && Math.abs(x) < 1e-4 ? x.toExponential(1) : String(+x.toPrecision(4))));
const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
const norm = (numbers) => Math.hypot(...numbers);
const width = (p) => Math.exp(-sum(p.map((x) => (x > 0 ? x * Math.log(x) : 0)))); // e to the entropy

/** The numbers of a packed array, in the order of its file. */
function unpack(held) {
  return Array.from(new Float32Array(Uint8Array.from(atob(held.float32), (c) => c.charCodeAt(0)).buffer));
}

const query = unpack(given.query).slice(head * d, (head + 1) * d);
const key = (token) => unpack(given.key).slice((head * count + token) * d, (head * count + token + 1) * d);

/** ‖P·V W_O‖ of the padding together: at most the sum of the lengths of its tokens. */
function paddingLength() {
  const value = unpack(given.value).slice(head * count * dv, (head + 1) * count * dv), weight = unpack(given.weight);
  const output = Array.from({ length: dv }, (_, n) => sum(pads.map((t) => shown.acted[t] * value[t * dv + n])));
  const channel = (c) => sum(output.map((x, n) => x * weight[c * heads * dv + head * dv + n]));
  return norm(Array.from({ length: channels }, (_, c) => channel(c)));
}

// --- elements

const element = dom.make;

function svg(markup) {
  const made = element("template");
  made.innerHTML = markup;
  return made.content.firstChild;
}

/** A bar from 0 to a value, on a scale from low (at most 0) to high. */
function bar(value, low, high) {
  const span = high - low || 1, at = (x) => ((Math.max(low, Math.min(x, high)) - low) / span) * 100;
  const zero = at(0), end = at(value), axis = low < 0 ? `<line x1="${zero}" x2="${zero}" y1="0" y2="9"/>` : "";
  const box = `<rect x="${Math.min(zero, end)}" y="0" width="${Math.abs(end - zero)}" height="9"/>`;
  return svg(`<svg viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true">${box}${axis}</svg>`);
}

/** Bars of numbers beside a label, positive ones up and negative ones down. */
function strip(label, numbers) {
  const some = numbers.slice(0, 512), most = Math.max(...some.map(Math.abs)) || 1;
  const bars = some.map((x, n) => {
    const tall = (Math.abs(x) / most) * 12;
    return `<rect x="${n + 0.1}" y="${x > 0 ? 12 - tall : 12}" width="0.8" height="${tall}"/>`;
  });
  const axis = `<line x1="0" x2="${some.length}" y1="12" y2="12"/>`;
  const box = `viewBox="0 0 ${some.length} 24" preserveAspectRatio="none" aria-hidden="true"`;
  return [element("span", {}, label), svg(`<svg ${box}>${bars.join("")}${axis}</svg>`)];
}

const strips = (pairs) => element("div", { class: "strip" }, ...pairs.flatMap(([label, numbers]) => strip(label, numbers)));
const paragraph = (...parts) => element("p", {}, ...parts);
const facts = (pairs) =>
  element("dl", {}, ...pairs.filter(([, text]) => text).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));

function table(titles, body) {
  const line = titles.length ? [element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", {}, title))))] : [];
  return element("table", {}, ...line, element("tbody", {}, ...body));
}

/** A row of a table: texts, and bars as elements. */
function row(name, cells, kind = "") {
  const made = cells.map((one) => (one instanceof Node ? element("td", { class: "bar two" }, one) : element("td", {}, one)));
  return element("tr", { class: kind }, element("th", {}, element("bdi", {}, name)), ...made);
}

/** A table of the tokens: columns of {title, values, format, pad}; the padding is one row. */
function tokenTable(columns, sums = []) {
  const cell = ({ format, values }, x) => (format === "bar" ? barOf(values, x) : format(x));
  const body = rows.map((token) =>
    row(token.text, columns.map((one) => cell(one, one.values[token.position])), mine.has(token.position) ? "mine" : ""),
  );
  if (pads.length) {
    const rest = columns.map((one) => {
      const there = pads.map((t) => one.values[t]).filter((x) => x !== null);
      if (one.pad !== "range") return cell(one, one.pad ?? (there.length ? sum(there) : null));
      const low = Math.min(...there), high = Math.max(...there);
      if (!there.length) return "hidden";
      return one.format === "bar" ? barOf(one.values, sum(there) / there.length) : `${brief(low)} … ${brief(high)}`;
    });
    body.push(row(`${pads.length} × padding`, rest, "more"));
  }
  if (sums.length) body.push(row("sum", sums, "sum"));
  return table(["token", ...columns.map((one) => one.title)], body);
}

/** A bar on the scale of a column. */
function barOf(values, x) {
  const finite = values.filter((one) => one !== null);
  return bar(x ?? 0, Math.min(0, ...finite), Math.max(0, ...finite));
}

// --- the sections

function position() {
  const [w, h] = about.size, [rowCount, columnCount] = about.grid, [y, x] = about.place;
  const box = `x="${(x * w) / columnCount}" y="${(y * h) / rowCount}" width="${w / columnCount}" height="${h / rowCount}"`;
  const dot = `cx="${about.at[0] + 0.5}" cy="${about.at[1] + 0.5}" r="${Math.max(w, h) / 110}"`;
  const drawn = svg(
    `<svg viewBox="0 0 ${w} ${h}" role="img" aria-label="The image, with the position marked"><image width="${w}" height="${h}"/>` +
      `<rect class="casing" ${box}/><rect class="cell" ${box}/><circle ${dot}/></svg>`,
  );
  drawn.firstChild.setAttribute("href", document.getElementById("picture").src);
  const [pass, passes] = about.passes;
  const how = (axis) =>
    axis === "step" ? "the middle step" : "where the word's probability is largest here, but at most a half, at this step";
  const list = facts([
    ["pixel", `${about.at[0]},${about.at[1]} of ${w}×${h}, from the upper left`],
    ["position", `row ${y}, column ${x} of a grid of ${rowCount}×${columnCount}, counted from 0`],
    ["layer", `${about.short} (${about.layer})`],
    ["head", `${head} of 0–${heads - 1}`],
    ["step", `${about.step} of 0–${about.steps - 1}; timestep ${about.timestep}`],
    ["pass", passes > 1 ? `${pass} of 0–${passes - 1} within the step` : ""],
    ["branch", about.branch === "negative" ? "the negative prompt" : ""],
    ...about.chosen.map((axis) => [`${axis} chosen`, how(axis)]),
    ["saved maps", about.kept === null ? "" : `they differ by at most ${about.kept.toExponential(1)}`],
    ["model", `${about.model}, ${about.dtype}, seed ${about.seed}`],
    ["other settings", about.changed.join(", ")],
  ]);
  return ["The position", element("div", { class: "place" }, drawn, list)];
}

function inputs() {
  const shapes = [
    ["Q", `1 × ${d}`, "the query of the position: its hidden state times W_Q"],
    ["K", `${count} × ${d}`, "the key of each token: its text state times W_K"],
    ["V", `${count} × ${dv}`, "the value of each token: its text state times W_V"],
    ["QKᵀ", `1 × ${count}`, "a score for each token"],
    ["P", `1 × ${count}`, "a probability for each token, 1 in all"],
    ["PV", `1 × ${dv}`, "the output of the head"],
  ].map(([name, shape, what]) => element("tr", {}, element("th", {}, name), element("td", {}, shape), element("td", { class: "word" }, what)));
  return [
    "Query, keys and values",
    paragraph(`One position of the image attends to ${count} tokens. Each of the ${heads} heads has its own queries and keys of ${d} numbers; this is head ${head}.`),
    table([], shapes),
  ];
}

function scores() {
  const token = about.tokens.reduce((a, b) => (shown.scores[b] > shown.scores[a] ? b : a)), k = key(token);
  const factor = (x) => (x < 0 ? `(${brief(x)})` : brief(x));
  const terms = query.slice(0, 2).map((x, n) => `${factor(x)}·${factor(k[n])}`).join(" + ");
  const columns = ["bar", digits].map((format, n) => ({ title: n ? "Q·K" : "", values: shown.scores, format, pad: "range" }));
  return [
    "QKᵀ: how well does each key fit the query?",
    paragraph("Query and key are multiplied number by number and added up. For ", element("bdi", {}, tokens[token].text), ":"),
    strips([["q", query], ["k", k], ["q·k", query.map((x, n) => x * k[n])]]),
    element("p", { class: "way" }, `${terms} + … = ${digits(shown.scores[token])}`),
    tokenTable(columns),
  ];
}

function scaled() {
  const { probabilities: p, unscaled: other } = shown, most = Math.max(...p), before = Math.max(...other);
  const root = Math.abs(given.scale * Math.sqrt(d) - 1) < 1e-6;
  const by = root ? `√${d} = ${digits(1 / given.scale)}` : digits(1 / given.scale);
  const effect =
    most > 0.999
      ? `The largest probability of this head is ${digits(most)}, so the row looks the same without the scale.`
      : `Without the scale, the largest probability would be ${digits(before)} instead of ${digits(most)}, and the row as wide as ` +
        `${width(other).toFixed(2)} equal probabilities instead of ${width(p).toFixed(2)}.`;
  return [
    root ? "÷ √d, and P without it" : "× scale, and P without it",
    paragraph(`A sum of ${d} products grows with √${d}, so the scores are divided by ${by}. ${effect}`),
    tokenTable([
      { title: root ? `÷ √${d}` : "scaled", values: shown.scaled, format: brief, pad: "range" },
      { title: "P", values: p, format: "bar" }, { title: "", values: p, format: brief },
      { title: "P without", values: other, format: "bar" }, { title: "", values: other, format: brief },
    ]),
  ];
}

function mask() {
  const drawn = pads.length ? ` The ${pads.length} tokens of padding get ${brief(sum(pads.map((t) => shown.acted[t])))} in all.` : "";
  if (given.mask === null) return ["The mask", paragraph(`This model has no mask: the position attends to every token.${drawn}`)];
  const numbers = unpack(given.mask).slice(head * count, (head + 1) * count);
  const hidden = numbers.filter((x, t) => x < 0 && shown.probabilities[t] === 0), least = Math.min(...numbers);
  const text = hidden.length
    ? `The mask hides ${hidden.length} of ${count} tokens: ${least === -Infinity ? "−∞" : least} is added to their scores, and e to that power is 0.`
    : `It hides none of the ${count} tokens: ${least} to ${Math.max(...numbers)} is added to their scores.`;
  return ["The mask", paragraph(text + drawn)];
}

function softmax() {
  const top = Math.max(...shown.masked.filter((x) => x !== null)), p = shown.probabilities;
  const raised = shown.masked.map((x) => (x === null ? 0 : Math.exp(x - top)));
  const columns = [{ title: "e^…", values: raised, format: digits }, { title: "", values: p, format: "bar" }, { title: "P", values: p, format: digits }];
  const sums = [digits(sum(raised)), "", digits(sum(p))];
  if (given.edited) columns.push({ title: "as edited", values: shown.acted, format: digits }), sums.push(digits(sum(shown.acted)));
  return [
    "The softmax: a row that sums to 1",
    paragraph(
      `The largest score, ${digits(top)}, is subtracted from all scores, which changes no probability. Then e to the power of each is ` +
        `divided by the sum, ${digits(sum(raised))}.${given.edited ? " An edit then changed the row, as the last column shows." : ""}`,
    ),
    tokenTable(columns, sums),
  ];
}

function contributions() {
  const pad = pads.length ? paddingLength() : undefined;
  return [
    "P V: the contribution of each token",
    paragraph(
      `The values of the tokens are multiplied by their probabilities and added: ${dv} numbers (${shown.output.slice(0, 4).map(brief).join(", ")}, …). ` +
        `The head's ${dv} rows of W_O (${heads * dv} × ${channels}) turn them into ${channels} channels. The length of a token's part is its ` +
        `contribution${pads.length ? " (of the padding together)" : ""}.`,
    ),
    tokenTable(
      [{ title: "P", values: shown.acted, format: brief }, { title: "", values: shown.brought, format: "bar", pad }, { title: "‖P·V W_O‖", values: shown.brought, format: digits, pad }],
      [digits(sum(shown.acted)), "", `‖Σ‖ ${digits(shown.heads[head].length)}`],
    ),
  ];
}

function allHeads() {
  const words = shown.heads.map((one) => one.word), lengths = shown.heads.map((one) => one.length);
  const body = shown.heads.map((one, n) => {
    const cells = [bar(one.word, Math.min(0, ...words), Math.max(1, ...words)), brief(one.word)];
    return row(String(n), [...cells, bar(one.length, 0, Math.max(...lengths)), brief(one.word_length), brief(one.length)], n === head ? "mine" : "");
  });
  return [
    "All heads",
    paragraph(`The ${heads} heads have their own queries and keys at this position, and may disagree.`),
    table(["head", "", `P of ${about.word}`, "", `contribution of ${about.word}`, "of all"], body),
  ];
}

function output() {
  const parts = [`[O_0 … O_${heads - 1}] · W_O`, ...(given.bias ? ["b"] : []), ...(given.residual ? ["input"] : [])].join(" + ");
  return [
    "The output of the layer",
    ...(given.added ? [paragraph("The attention of an image prompt is added before W_O.")] : []),
    element("p", { class: "way" }, `Y = ${given.factor === 1 ? parts : `(${parts}) / ${given.factor}`}`),
    strips([["O", shown.joined], ["Y", shown.together]]),
    facts([
      ["O", `${heads} × ${dv} = ${heads * dv} numbers`],
      ["O · W_O", `(1 × ${heads * dv}) · (${heads * dv} × ${channels})`],
      ["‖Y‖", digits(norm(shown.together))],
      ["the model's own", digits(norm(unpack(given.output)))],
      ["difference", `at most ${shown.difference.toExponential(1)} in a channel (${about.dtype})`],
    ]),
    element("p", { class: "note" }, "Y is added to the hidden state of this position."),
  ];
}

function everything() {
  const named = {
    "Q·K": shown.scores, scaled: shown.scaled, masked: shown.masked, P: shown.probabilities, "P unscaled": shown.unscaled,
    "P after edits": shown.acted, "‖P·V W_O‖": shown.brought, "of all heads": shown.all_brought,
  };
  const body = tokens.map(({ position: t, text }) =>
    row(`${t} ${text}`, Object.values(named).map((values) => digits(values[t])), mine.has(t) ? "mine" : ""),
  );
  const wide = element("div", { class: "wide" }, table(["token", ...Object.keys(named)], body));
  return element("details", { class: "all" }, element("summary", {}, `All ${count} tokens, all numbers`), wide);
}

// --- the page

function lead() {
  const p = sum(about.tokens.map((t) => shown.acted[t])), most = shown.acted.indexOf(Math.max(...shown.acted));
  const other = mine.has(most) ? [] : [" Most goes to ", element("bdi", {}, tokens[most].text), `: ${brief(shown.acted[most])}.`];
  const place = `At pixel ${about.at[0]},${about.at[1]}, in head ${head} of ${about.short}, at step ${about.step} of 0–${about.steps - 1}, `;
  const text = [element("b", {}, digits(p)), " of the attention goes to ", element("b", {}, about.word), ".", ...other];
  return element("p", { class: "lead" }, place, ...text, " The sections show how the model computes that number, in order.");
}

function prompt() {
  const letters = [...about.prompt], made = element("p", { class: "prompt" }); // spans count code points
  let done = 0;
  for (const [start, end] of about.spans) {
    made.append(letters.slice(done, start).join(""), element("mark", {}, letters.slice(start, end).join("")));
    done = end;
  }
  made.append(letters.slice(done).join(""));
  return made;
}

document.querySelector("header").append(prompt(), lead());
const sections = [position, inputs, scores, scaled, mask, softmax, contributions, allHeads, output].map((one) => one());
const boxes = sections.map(([title, ...rest], n) => element("section", {}, element("h2", {}, element("i", {}, String(n)), title), ...rest));
document.querySelector("main").append(...boxes);
document.querySelector("main").after(everything());
const file = new Blob([JSON.stringify(data, null, 2) + "\n"], { type: "application/json" });
document.getElementById("download").href = URL.createObjectURL(file);
document.documentElement.dataset.ready = "yes";

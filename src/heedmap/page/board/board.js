/* The page of an explanation: it shows explain.json, in the order of the computation.

   Text is always set as text, so that nothing a user typed becomes markup; only numbers are
   written into the SVG of bars. */

const data = JSON.parse(document.getElementById("data").textContent);
const { report, tokens, inputs, numbers } = data;
const [heads, count, dv] = inputs.value.shape;
const d = inputs.query.shape[1], channels = inputs.output.shape[0], head = report.head;
const mine = new Set(report.tokens);
const joint = tokens.at(-1).kind === "image"; // text and image share one softmax
const pads = tokens.filter((token) => token.kind === "pad" && !mine.has(token.position)).map((token) => token.position);
const rows = tokens.filter((token) => !pads.includes(token.position));

// --- numbers

const minus = (text) => text.replace("-", "−");
const digits = (x) => (x === -Infinity ? "hidden" : minus(x !== 0 && Math.abs(x) < 1e-6 ? x.toExponential(3) : x.toFixed(8)));
const brief = (x) => minus(x !== 0 && Math.abs(x) < 1e-4 ? x.toExponential(1) : String(+x.toPrecision(4)));
const sum = (list) => list.reduce((total, x) => total + x, 0);
const norm = (list) => Math.hypot(...list);
const width = (p) => Math.exp(-sum(p.map((x) => (x > 0 ? x * Math.log(x) : 0)))); // e to the entropy

/** The numbers of a packed array, in the order of its file. */
function unpack(packed) {
  return Array.from(new Float32Array(Uint8Array.from(atob(packed.float32), (c) => c.charCodeAt(0)).buffer));
}

/** The numbers of this head in a packed array, whose first axis is the heads. */
function ofHead(packed) {
  const all = unpack(packed), size = all.length / heads;
  return all.slice(head * size, (head + 1) * size);
}

const query = ofHead(inputs.query), keys = ofHead(inputs.key), values = ofHead(inputs.value);
const mask = inputs.mask && ofHead(inputs.mask);
const scaled = numbers.scores.map((x) => x * inputs.scale);
const masked = scaled.map((x, t) => (mask ? x + mask[t] : x));

/** P V of the head, over some of the tokens. */
function headOutput(some) {
  return Array.from({ length: dv }, (_, n) => sum(some.map((t) => numbers.probabilities[t] * values[t * dv + n])));
}

/** ‖P·V W_O‖ of the padding together: at most the sum of the lengths of its tokens. */
function paddingLength() {
  const output = headOutput(pads), weight = unpack(inputs.weight);
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
      const there = pads.map((t) => one.values[t]);
      if (one.pad !== "range") return cell(one, one.pad ?? sum(there));
      const low = Math.min(...there), high = Math.max(...there);
      return one.format === "bar" ? barOf(one.values, sum(there) / there.length) : `${brief(low)} … ${brief(high)}`;
    });
    body.push(row(`${pads.length} × padding`, rest, "more"));
  }
  if (sums.length) body.push(row("sum", sums, "sum"));
  return table(["token", ...columns.map((one) => one.title)], body);
}

/** A bar on the scale of a column. */
function barOf(values, x) {
  return bar(x, Math.min(0, ...values), Math.max(0, ...values));
}

// --- the sections

function position() {
  const [w, h] = report.size, [rowCount, columnCount] = report.layer.grid, [y, x] = report.place;
  const box = `x="${(x * w) / columnCount}" y="${(y * h) / rowCount}" width="${w / columnCount}" height="${h / rowCount}"`;
  const dot = `cx="${report.at[0] + 0.5}" cy="${report.at[1] + 0.5}" r="${Math.max(w, h) / 110}"`;
  const drawn = svg(
    `<svg viewBox="0 0 ${w} ${h}" role="img" aria-label="The image, with the position marked"><image width="${w}" height="${h}"/>` +
      `<rect class="casing" ${box}/><rect class="cell" ${box}/><circle ${dot}/></svg>`,
  );
  drawn.firstChild.setAttribute("href", document.getElementById("picture").src);
  const [pass, passes] = report.passes;
  const automatic = report.automatic_axes, searched = automatic.filter((axis) => axis !== "step");
  const chosen = [
    ...(automatic.includes("step") ? ["the middle step"] : []),
    ...(searched.length ? [`the ${searched.join(" and ")} with the largest of the word's probabilities at this pixel and step that do not exceed 0.5`] : []),
  ].join("; ");
  const list = facts([
    ["pixel", `${report.at[0]},${report.at[1]} of ${w}×${h}, from the upper left`],
    ["position", `row ${y}, column ${x} of a grid of ${rowCount}×${columnCount}, counted from 0`],
    ["layer", `${report.short} (${report.layer.name})`],
    ["head", `${head} of 0–${heads - 1}`],
    ["step", `${report.step} of 0–${report.steps - 1}; timestep ${Number(report.timestep.toFixed(2))}`],
    ["pass", passes > 1 ? `${pass} of 0–${passes - 1} within the step` : ""],
    ["difference from the saved map", report.maps_difference === null ? "" : `at most ${report.maps_difference.toExponential(1)}`],
    ["model", `${report.model}, ${report.dtype}, seed ${report.seed}`],
    ["settings that differ from the saved run", report.settings_diff.join(", ")],
  ]);
  return ["The position", element("div", { class: "place" }, drawn, list), element("p", { class: "note" }, chosen && `Chosen automatically: ${chosen}.`)];
}

function vectors() {
  const shapes = [
    ["Q", `1 × ${d}`, "the query of the position: its hidden state times W_Q"],
    ["K", `${count} × ${d}`, "the key of each token: its text state times W_K"],
    ["V", `${count} × ${dv}`, "the value of each token: its text state times W_V"],
    ["QKᵀ", `1 × ${count}`, "a score for each token"],
    ["P", `1 × ${count}`, "a probability for each token, 1 in all"],
    ["PV", `1 × ${dv}`, "the output of the head"],
  ].map(([name, shape, what]) => element("tr", {}, element("th", {}, name), element("td", {}, shape), element("td", { class: "word" }, what)));
  const others = joint ? `${count - 1} tokens and to the image, in one softmax` : `${count} tokens`;
  const image = joint
    ? [paragraph("The row <image> stands for all keys of the image: its scaled score is the logarithm of the sum of e to the power of theirs, and its value is the mean of their values, weighted by their attention.")]
    : [];
  return [
    "Query, keys and values",
    paragraph(`One position of the image attends to ${others}. Each of the ${heads} heads has its own queries and keys of ${d} numbers; this is head ${head}.`),
    ...image,
    table([], shapes),
  ];
}

function scores() {
  const token = report.tokens.reduce((a, b) => (numbers.scores[b] > numbers.scores[a] ? b : a));
  const k = keys.slice(token * d, (token + 1) * d);
  const factor = (x) => (x < 0 ? `(${brief(x)})` : brief(x));
  const terms = query.slice(0, 2).map((x, n) => `${factor(x)}·${factor(k[n])}`).join(" + ");
  const columns = ["bar", digits].map((format, n) => ({ title: n ? "Q·K" : "", values: numbers.scores, format, pad: "range" }));
  return [
    "QKᵀ: how well does each key fit the query?",
    paragraph("Query and key are multiplied number by number and added up. For ", element("bdi", {}, tokens[token].text), ":"),
    strips([["q", query], ["k", k], ["q·k", query.map((x, n) => x * k[n])]]),
    element("p", { class: "way" }, `${terms} + … = ${digits(numbers.scores[token])}`),
    tokenTable(columns),
  ];
}

function scale() {
  const { softmax: p, unscaled_softmax: other } = numbers, most = Math.max(...p), before = Math.max(...other);
  const root = Math.abs(inputs.scale * Math.sqrt(d) - 1) < 1e-6;
  const by = root ? `√${d} = ${digits(1 / inputs.scale)}` : digits(1 / inputs.scale);
  const effect =
    most > 0.999
      ? `The largest probability of this head is ${digits(most)}, so the row looks the same without the scale.`
      : `Without the scale, the largest probability would be ${digits(before)} instead of ${digits(most)}, as if ` +
        `${width(other).toFixed(2)} tokens shared the attention equally instead of ${width(p).toFixed(2)}.`;
  return [
    root ? "Scaling by √d, and P without it" : "Scaling, and P without it",
    paragraph(
      `A sum of ${d} products grows with √${d}, so the scores are divided by ${by}. ${effect}` +
        `${joint ? " Without it, <image> counts as one key of the score above, not as many." : ""}`,
    ),
    tokenTable([
      { title: root ? `÷ √${d}` : "scaled", values: scaled, format: brief, pad: "range" },
      { title: "P", values: p, format: "bar" }, { title: "", values: p, format: brief },
      { title: "P without", values: other, format: "bar" }, { title: "", values: other, format: brief },
    ]),
  ];
}

function masking() {
  const drawn = pads.length ? ` The ${pads.length} tokens of padding get ${brief(sum(pads.map((t) => numbers.probabilities[t])))} in all.` : "";
  if (mask === null) return ["The mask", paragraph(`This model has no mask: the position attends to every token.${drawn}`)];
  const unseen = mask.filter((x, t) => x < 0 && numbers.softmax[t] === 0), least = Math.min(...mask);
  const text = unseen.length
    ? `The mask hides ${unseen.length} of ${count} tokens: ${least === -Infinity ? "−∞" : least} is added to their scores, and e to that power is 0.`
    : `It hides none of the ${count} tokens: ${least} to ${Math.max(...mask)} is added to their scores.`;
  return ["The mask", paragraph(text + drawn)];
}

function softmax() {
  const { softmax: p, probabilities: edited } = numbers, top = Math.max(...masked), raised = masked.map((x) => Math.exp(x - top));
  const columns = [{ title: "e^…", values: raised, format: digits }, { title: "", values: p, format: "bar" }, { title: "P", values: p, format: digits }];
  const sums = [digits(sum(raised)), "", digits(sum(p))];
  if (inputs.edited) columns.push({ title: "as edited", values: edited, format: digits }), sums.push(digits(sum(edited)));
  return [
    "The softmax: a row that sums to 1",
    paragraph(
      `The largest score, ${digits(top)}, is subtracted from all scores, which changes no probability. Then e to the power of each is ` +
        `divided by the sum, ${digits(sum(raised))}.${inputs.edited ? " An edit then changed the row, as the last column shows." : ""}`,
    ),
    tokenTable(columns, sums),
  ];
}

function contributions() {
  const { probabilities: p, contributions: lengths } = numbers;
  const pad = pads.length ? paddingLength() : undefined, output = headOutput(tokens.map((one) => one.position));
  return [
    "P V: the contribution of each token",
    paragraph(
      `The values of the tokens are multiplied by their probabilities and added: ${dv} numbers (${output.slice(0, 4).map(brief).join(", ")}, …). ` +
        `The head's ${dv} rows of W_O (${heads * dv} × ${channels}) turn them into ${channels} channels. A token's contribution is ` +
        `the length of its part${pads.length ? "; padding tokens are summed first" : ""}.`,
    ),
    tokenTable(
      [{ title: "P", values: p, format: brief }, { title: "", values: lengths, format: "bar", pad }, { title: "‖P·V W_O‖", values: lengths, format: digits, pad }],
      [digits(sum(p)), "", `‖Σ‖ ${digits(numbers.tokens_contributions[head])}`],
    ),
  ];
}

function allHeads() {
  const { word_probabilities: p, word_contributions: ofWord, tokens_contributions: ofAll } = numbers;
  const body = p.map((x, n) => {
    const cells = [bar(x, Math.min(0, ...p), Math.max(1, ...p)), brief(x), bar(ofAll[n], 0, Math.max(...ofAll)), brief(ofWord[n]), brief(ofAll[n])];
    return row(String(n), cells, n === head ? "mine" : "");
  });
  return [
    "All heads",
    paragraph(`The ${heads} heads have their own queries and keys at this position, and may disagree.`),
    table(["head", "", `P of ${report.word}`, "", `contribution of ${report.word}`, "of all tokens"], body),
  ];
}

function output() {
  const parts = [`[O_0 … O_${heads - 1}] · W_O`, ...(inputs.bias ? ["b"] : []), ...(inputs.residual ? ["input"] : [])].join(" + ");
  return [
    "The output of the layer",
    ...(inputs.added ? [paragraph("The attention of an image prompt is added before W_O.")] : []),
    element("p", { class: "way" }, `Y = ${inputs.factor === 1 ? parts : `(${parts}) / ${inputs.factor}`}`),
    strips([["O", numbers.heads_output], ["Y", numbers.output]]),
    facts([
      ["O", `${heads} × ${dv} = ${heads * dv} numbers`],
      ["O · W_O", `(1 × ${heads * dv}) · (${heads * dv} × ${channels})`],
      ["‖Y‖", digits(norm(numbers.output))],
      ["the model's own", digits(norm(unpack(inputs.output)))],
      ["difference", `at most ${numbers.difference.toExponential(1)} in a channel (${report.dtype})`],
    ]),
    element("p", { class: "note" }, "Y is added to the hidden state of this position."),
  ];
}

function everything() {
  const named = {
    "Q·K": numbers.scores, scaled, masked, P: numbers.softmax, "P unscaled": numbers.unscaled_softmax,
    "P after edits": numbers.probabilities, "‖P·V W_O‖": numbers.contributions, "of all heads": numbers.heads_contributions,
  };
  const body = tokens.map(({ position: t, text }) =>
    row(`${t} ${text}`, Object.values(named).map((column) => digits(column[t])), mine.has(t) ? "mine" : ""),
  );
  const wide = element("div", { class: "wide" }, table(["token", ...Object.keys(named)], body));
  return element("details", { class: "all" }, element("summary", {}, `All ${count} tokens, all numbers`), wide);
}

// --- the page

function lead() {
  const p = numbers.probabilities, most = p.indexOf(Math.max(...p));
  const other = mine.has(most) ? [] : [" The largest share of one token goes to ", element("bdi", {}, tokens[most].text), `: ${brief(p[most])}.`];
  const place = `At pixel ${report.at[0]},${report.at[1]}, in head ${head} of ${report.short}, at step ${report.step} of 0–${report.steps - 1}, `;
  const text = [element("b", {}, digits(numbers.word_probabilities[head])), " of the attention goes to ", element("b", {}, report.word), ".", ...other];
  return element("p", { class: "lead" }, place, ...text, " The sections show how the model computes that number, in order.");
}

function prompt() {
  const letters = [...report.prompt], made = element("p", { class: "prompt" }); // tokens count code points
  const spans = [];
  for (const { start, end } of report.tokens.map((t) => tokens[t])) {
    const last = spans.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else spans.push([start, end]);
  }
  let done = 0;
  for (const [start, end] of spans) {
    made.append(letters.slice(done, start).join(""), element("mark", {}, letters.slice(start, end).join("")));
    done = end;
  }
  made.append(letters.slice(done).join(""));
  return made;
}

document.querySelector("header").append(prompt(), lead());
const sections = [position, vectors, scores, scale, masking, softmax, contributions, allHeads, output].map((one) => one());
const boxes = sections.map(([title, ...rest], n) => element("section", {}, element("h2", {}, element("i", {}, String(n)), title), ...rest));
document.querySelector("main").append(...boxes);
document.querySelector("main").after(everything());
const file = new Blob([JSON.stringify(data, null, 2) + "\n"], { type: "application/json" });
document.getElementById("download").href = URL.createObjectURL(file);
document.documentElement.dataset.ready = "yes";
dom.bindFrame();

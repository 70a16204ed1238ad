/* Files to keep: the overlay as PNG, the map's numbers as NPY. */

function nameDownloads() {
  const terms = termsKept();
  const what = terms.length > 1 ? `${terms.length} words` : terms.length ? terms[0].label : "";
  const short = what.length > 18 ? `${what.slice(0, 17)}…` : what;
  for (const [id, kind, file] of [["png", "Overlay", "PNG"], ["npy", "Map", "NPY"]]) {
    $(id).disabled = !terms.length;
    $(id).textContent = what ? `${kind} of ${short}, ${file}` : `${kind}, ${file}`;
  }
}

function fileName(terms, figure, kind) {
  const { from, to } = selection();
  const all = from === 0 && to === mainView().steps;
  const parts = [
    terms.map((term) => term.label).join(" "),
    pairNow() ? figure.element.dataset.kind : "",
    kind === "png" ? state.scale : "",
    refined() ? "refined" : "",
    layersNow() === "all" ? "" : layersSaid(),
    all ? "" : to - from === 1 ? `step ${from}` : `steps ${from}-${to - 1}`,
    headNow() < 0 ? "" : headsSaid(),
    state.native ? "native" : "",
  ];
  const name = parts.filter(Boolean).join(" ").replace(/[^\p{L}\p{M}\p{N}]+/gu, "-");
  return `${name.replace(/^-|-$/g, "").slice(0, 120) || "map"}.${kind}`; // a word may be of signs alone
}

function keepPng() {
  const terms = termsKept();
  for (const figure of shown.figures.filter((one) => one.kind === "run")) {
    const heats = terms.flatMap((term) => {
      const heat = heatOf(term, figure.run, terms);
      return heat ? [{ ...heat, label: labelsOf(term) }] : [];
    });
    if (!heats.length) continue;
    const canvas = make("canvas", { width: figure.canvas.width, height: figure.canvas.height });
    const pen = canvas.getContext("2d");
    const image = new ImageData(canvas.width, canvas.height);
    overlay(pictureNow(figure), heats, state.opacity, data.look, tables[state.colours], image);
    pen.putImageData(image, 0, 0);
    if (state.outline) {
      for (const heat of heats) inkOutline(pen, heat, heats.length > 1 ? heat.hue : [255, 255, 255]);
    }
    const whole = state.captioned ? withLegend(canvas, heats) : canvas;
    whole.toBlob((blob) => keepFile(blob, fileName(terms, figure, "png")), "image/png");
  }
}

/** A picture with what its heat means below it: words, their scales, and what was chosen. */
function withLegend(picture, heats) {
  const { width } = picture;
  const size = Math.max(12, Math.round(width / 42));
  const gap = Math.round(size * 0.8);
  const font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  const pen = make("canvas").getContext("2d");
  pen.font = font;
  const lines = wrapped(pen, $("legend").querySelector("p").textContent, width - 2 * gap);
  const canvas = make("canvas", { width, height: picture.height + gap + (heats.length + lines.length) * size * 1.6 + gap });
  const out = canvas.getContext("2d");
  out.fillStyle = "#ffffff";
  out.fillRect(0, 0, canvas.width, canvas.height);
  out.drawImage(picture, 0, 0);
  out.font = font;
  out.textBaseline = "middle";
  let y = picture.height + gap + size * 0.8;
  const wide = Math.round(width / 4);
  for (const heat of heats) {
    out.drawImage(heats.length > 1 ? hueBar(heat.hue, wide) : $("legend").querySelector("canvas"), gap, y - size / 2, wide, size);
    out.fillStyle = "#1c1c1f";
    const label = `${heat.label}   ${number(heat.low)} to ${number(heat.high)}`;
    out.fillText(label, 2 * gap + wide, y, width - 3 * gap - wide);
    y += size * 1.6;
  }
  out.fillStyle = "#5c5c63";
  for (const line of lines) {
    out.fillText(line, gap, y, width - 2 * gap);
    y += size * 1.6;
  }
  return canvas;
}

/** From no heat to all of a word's own hue. */
function hueBar(hue, wide) {
  const bar = make("canvas", { width: wide, height: 1 });
  const pen = bar.getContext("2d");
  const ramp = pen.createLinearGradient(0, 0, wide, 0);
  ramp.addColorStop(0, "#d3d1cb");
  ramp.addColorStop(1, `rgb(${hue.join(" ")})`);
  pen.fillStyle = ramp;
  pen.fillRect(0, 0, wide, 1);
  return bar;
}

/** A text in lines that are no wider than that. */
function wrapped(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.filter(Boolean);
}

function keepNpy() {
  const terms = termsKept();
  for (const figure of shown.figures.filter((one) => one.kind === "run")) {
    const heats = terms.flatMap((term) => heatOf(term, figure.run) || []);
    if (!heats.length) continue;
    const { w, h } = heats[0];
    const numbers = new Float32Array(heats.length * w * h);
    heats.forEach((heat, i) => numbers.set(heat.plane, i * w * h));
    const shape = heats.length > 1 ? [heats.length, h, w] : [h, w];
    keepFile(npyFile(numbers, shape), fileName(terms, figure, "npy"));
  }
}

/** Numbers as a NumPy file: float32, of any shape. */
function npyFile(numbers, shape) {
  const list = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  let head = `{'descr': '<f4', 'fortran_order': False, 'shape': (${list}), }`;
  head = head.padEnd(Math.ceil((head.length + 11) / 64) * 64 - 11) + "\n";
  const file = new Uint8Array(10 + head.length + numbers.length * 4);
  file.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, head.length & 255, head.length >> 8]);
  for (let i = 0; i < head.length; i++) file[10 + i] = head.charCodeAt(i);
  const data = new DataView(file.buffer, 10 + head.length);
  numbers.forEach((value, i) => data.setFloat32(i * 4, value, true));
  return new Blob([file], { type: "application/octet-stream" });
}

function keepFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

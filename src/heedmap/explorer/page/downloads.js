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

/** Bring in line what depends on the words that are kept. */
function termsChanged() {
  nameDownloads();
  renderRepeat();
}

function fileName(terms, figure, kind) {
  const { from, to } = selection();
  const all = from === 0 && to === mainView().steps;
  const parts = [
    terms.map((term) => term.label).join(" "),
    pairNow() ? figure.element.dataset.kind : "",
    kind === "png" ? state.scale : "",
    state.layers === "all" ? "" : layersSaid(),
    all ? "" : to - from === 1 ? `step ${to}` : `steps ${from + 1}-${to}`,
    state.head < 0 ? "" : headsSaid(),
    state.native ? "native" : "",
  ];
  const name = parts.filter(Boolean).join(" ").replace(/[^\p{L}\p{M}\p{N}]+/gu, "-");
  return `${name.replace(/^-|-$/g, "").slice(0, 120)}.${kind}`;
}

function keepPng() {
  const terms = termsKept();
  for (const figure of shown.figures.filter((one) => one.kind === "run")) {
    const heats = terms.flatMap((term) => heatOf(term, figure.run) || []);
    if (!heats.length) continue;
    const canvas = make("canvas", { width: figure.canvas.width, height: figure.canvas.height });
    const pen = canvas.getContext("2d");
    const image = new ImageData(canvas.width, canvas.height);
    overlay(figure.picture, heats, state.opacity, data.look, tables[state.colours], image);
    pen.putImageData(image, 0, 0);
    if (state.outline) {
      for (const heat of heats) inkOutline(pen, heat, heats.length > 1 ? heat.hue : [255, 255, 255]);
    }
    canvas.toBlob((blob) => keepFile(blob, fileName(terms, figure, "png")), "image/png");
  }
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

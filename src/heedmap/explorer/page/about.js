/* Settings, evidence of an edit, and how to repeat what is seen. */

function table(caption, heads, rows) {
  const name = (text) => make("th", { scope: "row", textContent: text });
  const cell = (text) => make("td", { textContent: text, dir: "auto" });
  const cells = (row) => row.map((text, i) => (i ? cell(text) : name(text)));
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col", textContent: text })));
  return make(
    "table",
    {},
    make("caption", { textContent: caption }),
    ...(heads.length ? [make("thead", {}, head)] : []),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row)))),
  );
}

function buildAbout() {
  const pair = pairNow();
  const run = data.runs[runsNow().at(-1)];
  const parts = [];
  if (pair) {
    const heads = ["Change", "of the picture", "MSE", "PSNR, dB", "SSIM"];
    parts.push(
      make(
        "section",
        { className: "evidence" },
        make("h2", { textContent: "What the edit did" }),
        make("p", { textContent: pair.why }),
        table("How much the picture changed", heads, pair.figures.change),
        table("What was done to the attention", [], pair.figures.said),
      ),
    );
  }
  if (data.grid) parts.push(repeatSection("Repeat this grid", data.grid.repeat, " of the grid"));
  const repeat = run.repeat.map(([name, text, note]) => [name, text.replace(/^heedmap repeat RUN/, `$&${cellNow()}`), note]);
  if (repeat.length) parts.push(repeatSection(pair ? "Repeat this edit" : "Repeat this run", repeat));
  parts.push(shownSection());
  const summary = make("summary", {}, make("h2", { textContent: "Settings" }));
  const settings = table(pair ? "of the edit" : "of the run", [], run.settings);
  parts.push(make("section", {}, make("details", {}, summary, settings)));
  $("about").replaceChildren(...parts);
  renderRepeat();
}

function repeatSection(title, repeat, of = "") {
  const ways = repeat.flatMap(([name, text, note]) => [
    make("h3", { textContent: name }),
    code(`${name}${of}`, text),
    ...(note ? [make("p", { className: "hint", textContent: note })] : []),
  ]);
  return make("section", { className: "repeat" }, make("h2", { textContent: title }), ...ways);
}

/** A section that renderRepeat() keeps in line with what is shown. */
function shownSection() {
  const ways = [["now-command", "a command"], ["now-python", "Python"]];
  return make(
    "section",
    { id: "now", className: "repeat" },
    make("h2", { textContent: "The map that is shown" }),
    ...ways.map(([id, name]) =>
      make("div", { id }, make("h3", { textContent: `As ${name}` }), code(`This map as ${name}`, "")),
    ),
    make("p", { className: "hint" }),
  );
}

/** Text whose lines may break before an option. */
function setCode(block, text) {
  if (block.textContent === text) return;
  block.replaceChildren(...text.split(/(?= --)/).map((part) => make("span", { textContent: part })));
}

/** Whether a block's text is on the clipboard now; if not, it is selected. */
async function copied(block) {
  try {
    await navigator.clipboard.writeText(block.textContent);
    return true;
  } catch {
    // The clipboard is shut by plain HTTP, and in a frame without leave; copying a selection is not.
    getSelection().selectAllChildren(block);
    const plain = (event) => {
      event.clipboardData.setData("text/plain", block.textContent);
      event.preventDefault();
    };
    addEventListener("copy", plain, { once: true });
    const done = document.execCommand("copy");
    removeEventListener("copy", plain);
    return done;
  }
}

function code(name, text) {
  const block = make("pre", { tabIndex: 0, role: "region" });
  setCode(block, text);
  block.setAttribute("aria-label", name);
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.setAttribute("aria-label", `Copy: ${name}`);
  copy.addEventListener("click", async () => {
    const done = await copied(block);
    if (done) copy.textContent = "Copied";
    announce(done ? "Copied." : "Selected: copy it with the keyboard.");
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return make("div", { className: "code" }, block, copy);
}

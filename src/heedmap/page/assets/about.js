/* Settings, the evidence of an edit, and the command that repeats the result. */

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
  const command = ["heedmap repeat FOLDER", run.model].filter(Boolean).join(" ");
  const hint = `FOLDER is the folder of this page${run.model ? ", MODEL a saved copy of the model" : ""}.`;
  parts.push(
    make(
      "section",
      { className: "repeat" },
      make("h2", { textContent: "Repeat" }),
      code("Repeat", command),
      make("p", { className: "hint", textContent: hint }),
    ),
  );
  const summary = make("summary", {}, make("h2", { textContent: "Settings" }));
  const settings = table(pair ? "of the edit" : "of the run", [], run.settings);
  parts.push(make("section", {}, make("details", {}, summary, settings)));
  $("about").replaceChildren(...parts);
}

/** Set the text of a block; lines may break before an option. */
function setCode(block, text) {
  if (block.textContent === text) return;
  block.replaceChildren(...text.split(/(?= --)/).map((part) => make("span", { textContent: part })));
}

/** Copy the text of a block to the clipboard, or select it; return whether it was copied. */
async function copied(block) {
  try {
    await navigator.clipboard.writeText(block.textContent);
    return true;
  } catch {
    // Plain HTTP and frames without permission have no clipboard API, but can copy a selection.
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

/* Begin. */

for (const run of data.runs) {
  for (const view of run.views) view.whenRead = () => changed({});
}
if (data.pairs.length) $("kind").textContent = data.pairs.length > 1 ? "edits" : "edit";
bindControls();
buildPairs();
startPair();
bindFrame();

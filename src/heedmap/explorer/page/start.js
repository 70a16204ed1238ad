/* Begin. */

for (const run of data.runs) {
  for (const view of run.views) view.whenRead = () => changed({});
}
readLink();
bindControls();
buildExplaining();
buildPairs();
startPair();
bindFrame();

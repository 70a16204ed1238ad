/* Begin. */

for (const run of data.runs) {
  for (const view of run.views.flatMap((one) => one.parts)) view.whenRead = () => changed({});
}
readLink();
followLink();
bindControls();
buildExplaining();
buildPairs();
startPair();
bindFrame();

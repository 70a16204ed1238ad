/* Which steps are shown: a range by its two ends, by the bar between them, and by playing. */

const player = { timer: 0 };

/** Show the windows of steps from one bound up to another, both by their place in stepBounds(). */
function showSteps(first, last, bounds = stepBounds()) {
  const all = first === 0 && last === bounds.length - 1;
  changed({ steps: all ? null : [bounds[first], bounds[last]] });
}

/** The range that is shown, as places in the bounds: [first, last]. */
function placesOfSteps(bounds) {
  return stepsNow().map((step) => bounds.indexOf(step));
}

/** Move one end; the other gives way, so that one window at least is left. */
function moveEnd(end, to) {
  const bounds = stepBounds();
  const most = bounds.length - 1;
  const [first, last] = placesOfSteps(bounds);
  if (end === "first") {
    const at = Math.min(to, most - 1);
    showSteps(at, Math.max(last, at + 1), bounds);
  } else {
    const at = Math.max(to, 1);
    showSteps(Math.min(first, at - 1), at, bounds);
  }
}

/** Move the range as it is by some windows; all steps become the first or the last window. */
function moveSteps(by) {
  const bounds = stepBounds();
  const most = bounds.length - 1;
  const [first, last] = placesOfSteps(bounds);
  if (last - first === most) {
    showSteps(by > 0 ? 0 : most - 1, by > 0 ? 1 : most, bounds);
  } else {
    const moved = Math.max(-first, Math.min(most - last, by));
    showSteps(first + moved, last + moved, bounds);
  }
}

function renderSteps() {
  const bounds = stepBounds();
  const most = bounds.length - 1;
  const places = placesOfSteps(bounds);
  const steps = stepsNow();
  ["first", "last"].forEach((id, i) => {
    $(id).max = String(most);
    $(id).value = String(places[i]);
    $(id).disabled = most < 2;
    const step = i ? steps[1] - 1 : steps[0];
    $(id).setAttribute("aria-valuetext", `${i ? "to" : "from"} step ${step} of 0–${mainView().steps - 1}`);
  });
  for (const id of ["back", "play", "on", "every"]) $(id).disabled = most < 2;
  $("every").disabled = !state.steps || refined();
  $("range").style.setProperty("--from", String(places[0] / most));
  $("range").style.setProperty("--to", String(places[1] / most));
  $("range").classList.toggle("disabled", most < 2);
  $("steps-said").textContent = stepsSaid();
}

/** The bar between the ends: a click shows one window of steps, a drag several. */
function bindRail() {
  const rail = $("range").querySelector(".rail");
  let grip = null; // the window at which the pointer went down, and what was shown before
  const windowAt = (event) => {
    const box = rail.getBoundingClientRect();
    const most = stepBounds().length - 1;
    const at = Math.floor(((event.clientX - box.left) / box.width) * most);
    return Math.max(0, Math.min(most - 1, at));
  };
  const show = (event) => {
    const ends = [grip.at, windowAt(event)];
    showSteps(Math.min(...ends), Math.max(...ends) + 1);
  };
  rail.addEventListener("pointerdown", (event) => {
    if (event.button || $("first").disabled) return;
    stopPlaying();
    rail.setPointerCapture(event.pointerId);
    grip = { at: windowAt(event), before: state.steps };
    show(event);
  });
  rail.addEventListener("pointermove", (event) => grip && show(event));
  rail.addEventListener("pointerup", () => (grip = null));
  rail.addEventListener("pointercancel", () => { // a finger that scrolls the page does not choose
    if (grip) changed({ steps: grip.before });
    grip = null;
  });
}

function bindSteps() {
  for (const end of ["first", "last"]) {
    $(end).addEventListener("input", () => {
      stopPlaying();
      moveEnd(end, Number($(end).value));
    });
    $(end).addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!event.shiftKey || !by) return;
      event.preventDefault();
      stopPlaying();
      moveSteps(by);
      announce(stepsSaid());
    });
  }
  const press = (id, act) => {
    $(id).addEventListener("click", () => {
      stopPlaying();
      act();
      announce(stepsSaid());
    });
  };
  press("back", () => moveSteps(-1));
  press("on", () => moveSteps(1));
  press("every", () => changed({ steps: null }));
  $("play").addEventListener("click", () => (player.timer ? stopPlaying() : play()));
  bindRail();
}

function stopPlaying() {
  clearInterval(player.timer);
  player.timer = 0;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "Play the steps");
}

/** Let a window as wide as the range walk to the last step; one step wide if all are shown. */
function play() {
  const bounds = stepBounds();
  const most = bounds.length - 1;
  let [first, last] = placesOfSteps(bounds);
  const wide = last - first < most ? last - first : 1;
  if (last === most) first = -1; // begin again
  const slow = matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "Stop playing");
  const next = () => {
    first++;
    showSteps(first, first + wide, bounds);
    if (first + wide >= stepBounds().length - 1) stopPlaying();
  };
  player.timer = setInterval(next, slow ? 900 : Math.max(120, Math.min(400, 6000 / most)));
  next();
}

// What the builder's own script leaves out: tables that scroll can be reached by the keyboard, and
// the buttons of code are no landmarks.
const mend = () => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    part.tabIndex = 0;
  }
  for (const part of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    part.setAttribute("role", "presentation");
  }
};
new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });

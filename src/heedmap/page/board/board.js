"use strict";
// The numbers are in the page: what is downloaded is explain.json as it was saved.
const text = document.getElementById("data").textContent;
const file = new Blob([JSON.stringify(JSON.parse(text), null, 2) + "\n"], { type: "application/json" });
const link = document.getElementById("download");
link.href = URL.createObjectURL(file);
link.hidden = false;

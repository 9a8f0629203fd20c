// Ask for the page again every few seconds and put its new content in place of the old one.
"use strict";
const EVERY = 5000;
const note = document.getElementById("live");

async function refresh() {
  try {
    const answer = await fetch("page", { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(await answer.text());
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const now = document.querySelector("main");
    const open = [...now.querySelectorAll("details")].map((one) => one.open);
    fresh.querySelectorAll("details").forEach((one, index) => { one.open = open[index] ?? one.open; });
    now.replaceWith(fresh);
    note.textContent = "";
  } catch (error) {
    note.textContent = "no news from tpuctl dashboard: " + error.message;
  }
  setTimeout(refresh, EVERY);
}

setTimeout(refresh, EVERY);

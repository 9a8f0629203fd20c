// Ask for the page again every few seconds and put its new content in place of the old one.
"use strict";
const EVERY = 5000;
let updated = Date.now();
let message = "";

function tell() {
  const seconds = Math.round((Date.now() - updated) / 1000);
  document.getElementById("age").textContent = `updated ${seconds} s ago`;
  document.getElementById("live").textContent = message;
}

async function refresh() {
  try {
    const answer = await fetch("page" + location.search, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(await answer.text());
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = fresh.title;
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    updated = Date.now();
    message = "";
  } catch (error) {
    message = "no news from tpuctl report --live: " + error.message;
  }
  tell();
}

tell();
setInterval(tell, 1000);
(async function follow() {
  await new Promise((done) => setTimeout(done, EVERY));
  await refresh();
  follow();
})();

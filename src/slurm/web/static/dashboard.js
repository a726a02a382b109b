// The dashboard's only script: keeps the page true, counts times, follows logs, hears keys.
"use strict";
(() => {
  const root = document.documentElement;
  const body = document.body;
  const main = document.getElementById("main");
  root.classList.add("scripted");

  // ---- the page changes in place ----------------------------------------------------------------

  // Makes one element like another; what a viewer opened, typed or marked stays as it is.
  function morph(from, to) {
    const keep = from.dataset ? from.dataset.keep : undefined;
    if (keep === "all" && from.id === to.id) return;
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && !(name === "open" && keep) && name !== "data-shown") {
        if (!(name === "class" && from.classList.contains("here"))) from.removeAttribute(name);
      }
    }
    for (const { name, value } of [...to.attributes]) {
      const now = from.getAttribute(name);
      if (now === value) continue;
      const here = name === "class" && from.classList.contains("here");
      from.setAttribute(name, here ? value + " here" : value);
    }
    if (from.matches("input, select, textarea")) {
      if (from !== document.activeElement && from.value !== to.value) from.value = to.value;
      if (from.matches("input")) return;
      if (from === document.activeElement) return;
    }
    children(from, to);
  }

  function alike(one, other) {
    return one.nodeType === other.nodeType && one.nodeName === other.nodeName &&
      (one.id || "") === (other.id || "");
  }

  function children(from, to) {
    const known = new Map();
    for (const node of from.children) if (node.id) known.set(node.id, node);
    let place = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      let found = null;
      if (wanted.id && known.has(wanted.id)) found = known.get(wanted.id);
      else if (place && alike(place, wanted) && !place.id) found = place;
      if (!found) {
        const made = document.importNode(wanted, true);
        from.insertBefore(made, place);
        if (made.nodeName === "TR" && made.id) made.classList.add("fresh");
        continue;
      }
      if (found === place) place = place.nextSibling;
      else from.insertBefore(found, place);
      if (found.nodeType === Node.TEXT_NODE) {
        if (found.data !== wanted.data) found.data = wanted.data;
      } else if (found.nodeType === Node.ELEMENT_NODE) morph(found, wanted);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  function show(part) {
    const began = performance.now();
    const parsed = new DOMParser().parseFromString(`<main id="main">${part.html}</main>`, "text/html");
    const fresh = parsed.getElementById("main");
    times(fresh);
    children(main, fresh);
    document.title = part.title;
    logs();
    // For those who measure: how long the last change took, and how many there were.
    main.dataset.took = (performance.now() - began).toFixed(1);
    main.dataset.parts = String(Number(main.dataset.parts || 0) + 1);
  }

  // ---- the stream -------------------------------------------------------------------------------

  let stream = null;
  let address = location.pathname + location.search;
  let seen = null; // when the data were collected, in this machine's time
  let trouble = "";
  const live = document.getElementById("live");
  const age = document.getElementById("age");
  const banner = document.getElementById("banner");

  function connect() {
    if (stream) stream.close();
    stream = new EventSource(address);
    stream.addEventListener("part", (event) => show(JSON.parse(event.data)));
    stream.addEventListener("state", (event) => state(JSON.parse(event.data)));
    stream.addEventListener("error", () => {
      live.className = "lost";
      age.textContent = "reconnecting …";
    });
  }

  function state(told) {
    seen = told.age === null ? null : Date.now() - told.age * 1000;
    clock = told.now * 1000 - Date.now();
    trouble = told.trouble;
    live.title = told.about;
    live.className = trouble ? "stale" : "live";
    tick();
  }

  function tell() {
    if (live.className === "lost") return;
    const old = seen === null ? null : Math.max(0, (Date.now() - seen) / 1000);
    age.textContent = old === null ? "waiting" : `${lasted(old)} old`;
    const words = !trouble ? "" : old === null ? trouble : `${trouble} (${lasted(old)} old)`;
    if ((banner.textContent || "") !== words) {
      banner.replaceChildren();
      if (words) banner.append(Object.assign(document.createElement("p"), { textContent: words }));
    }
  }

  // A page that nobody looks at asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { if (stream) stream.close(); stream = null; }
    else if (!stream && body.dataset.live !== undefined) connect();
  });

  // ---- times ------------------------------------------------------------------------------------

  let clock = body.dataset.now ? Number(body.dataset.now) * 1000 - Date.now() : 0;
  const two = (n) => String(n).padStart(2, "0");

  function lasted(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    const [s, m, h, d] = [whole % 60, Math.floor(whole / 60) % 60, Math.floor(whole / 3600) % 24, Math.floor(whole / 86400)];
    if (d) return `${d} d ${two(h)} h`;
    if (h) return `${h} h ${two(m)} m`;
    return m ? `${m} m ${two(s)} s` : `${s} s`;
  }

  function times(scope) {
    const now = Date.now() + clock;
    for (const one of scope.querySelectorAll("time[data-since]")) {
      one.textContent = lasted(now / 1000 - Number(one.dataset.since));
    }
    for (const one of scope.querySelectorAll("time[data-at]")) {
      const at = new Date(Number(one.dataset.at) * 1000);
      const day = at.toDateString() === new Date(now).toDateString();
      const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
      const words = `${day ? "" : date}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      if (one.textContent !== words) { one.textContent = words; one.title = at.toString(); }
    }
    for (const one of scope.querySelectorAll("text[data-tick]")) {
      const at = new Date(Number(one.dataset.tick) * 1000);
      if (one.textContent.includes(":")) one.textContent = `${two(at.getHours())}:${two(at.getMinutes())}`;
    }
  }

  function tick() {
    times(main);
    tell();
  }

  // ---- logs -------------------------------------------------------------------------------------

  const MOST = 400000; // letters of a log that a page keeps
  let log = null;

  function logs() {
    const place = main.querySelector("pre[data-log]");
    if (log && log.place === place) return;
    if (log) log.source.close();
    log = null;
    if (!place) return;
    const source = new EventSource(place.dataset.log);
    log = { place, source };
    source.addEventListener("text", (event) => append(place, JSON.parse(event.data)));
    source.addEventListener("refused", (event) => {
      place.classList.add("refused");
      place.textContent = JSON.parse(event.data).reason;
      place.dataset.shown = "refused";
    });
    source.addEventListener("end", () => source.close());
  }

  function append(place, told) {
    if (told.anew) {
      place.classList.remove("refused");
      place.textContent = told.cut ? "…\n" : "";
    }
    const box = document.getElementById("follow");
    let text = place.textContent + told.text;
    // What a progress bar wrote over is not shown again and again.
    if (text.includes("\r")) text = text.replace(/[^\n]*\r(?=[^\n])/g, "").replace(/\r/g, "");
    if (text.length > MOST) text = "…\n" + text.slice(-MOST);
    place.textContent = text;
    place.dataset.shown = String(text.length);
    if (!box || box.checked) place.scrollTop = place.scrollHeight;
  }

  // ---- filters: at once, without a new page ------------------------------------------------------

  let later = 0;
  function filter(form) {
    const words = new URLSearchParams(new FormData(form));
    for (const [key, value] of [...words]) if (!value) words.delete(key);
    const query = words.toString();
    address = form.getAttribute("action") + (query ? `?${query}` : "");
    history.replaceState(null, "", address);
    connect();
  }
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-filters]");
    if (!form) return;
    clearTimeout(later);
    later = setTimeout(() => filter(form), event.target.matches("input") ? 180 : 0);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-filters]");
    if (form) { event.preventDefault(); clearTimeout(later); filter(form); }
  });

  // ---- keys -------------------------------------------------------------------------------------

  const help = document.getElementById("help");
  let awaiting = 0;

  function step(by) {
    const rows = [...main.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.classList.contains("here"));
    const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
    if (at >= 0) rows[at].classList.remove("here");
    rows[next].classList.add("here");
    const link = rows[next].querySelector("a");
    if (link) link.focus({ preventScroll: true });
    rows[next].scrollIntoView({ block: "nearest" });
  }

  const keys = {
    "/": () => { const box = document.getElementById("search"); if (box) { box.focus(); box.select(); } else location.href = "/"; },
    j: () => step(1),
    k: () => step(-1),
    g: () => { awaiting = Date.now(); },
    "?": () => help.showModal(),
    Enter: () => {
      const link = main.querySelector(".here a");
      if (link && !document.activeElement.closest("a, button, summary")) link.click(); else return false;
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (help && help.open) return;
    if (Date.now() - awaiting < 1500) {
      awaiting = 0;
      const place = document.querySelector(`.top nav a[data-key="${CSS.escape(event.key)}"]`);
      if (place) { event.preventDefault(); place.click(); return; }
    }
    const act = keys[event.key];
    if (act && act() !== false) event.preventDefault();
  });

  // ---- buttons ----------------------------------------------------------------------------------

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("theme")?.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `theme=${root.dataset.theme}; Path=/; Max-Age=31536000; SameSite=Strict${secure}`;
  });
  document.getElementById("keys")?.addEventListener("click", () => help.showModal());

  if (body.dataset.live !== undefined) {
    connect();
    logs();
    setInterval(tick, 1000);
    tick();
  }
})();

"use strict";
// Plays the pictures of a record. Each says which rows have changed. All text is set as text, never as markup.
(() => {
  const data = document.getElementById("film");
  const pictures = JSON.parse(data.textContent);
  const [player, screen, play, seek, time, speed] =
    ["player", "screen", "play", "seek", "time", "speed"].map(id => document.getElementById(id));
  const rows = [];
  for (let y = 0; y < Number(data.dataset.rows); y++) rows.push(screen.appendChild(document.createElement("div")));
  let at = -1, factor = 1, timer = 0;

  const draw = (y, runs) => {
    if (!rows[y]) return;
    rows[y].replaceChildren(...(runs || []).map(run => {
      const span = document.createElement("span");
      span.textContent = run.text;
      span.className = "k" + Number(run.look) + (run.wide ? " w" : "");
      return span;
    }));
  };
  const clock = s => Math.floor(s / 60) + ":" + String(Math.floor(s % 60)).padStart(2, "0");
  const show = n => {
    if (n < at) { rows.forEach((_, y) => draw(y, [])); at = -1; }
    while (at < n) for (const [y, runs] of Object.entries(pictures[++at].rows)) draw(Number(y), runs);
    seek.value = at;
    time.textContent = clock(pictures[at].at) + " / " + clock(pictures[pictures.length - 1].at);
  };
  const stop = () => { clearTimeout(timer); timer = 0; play.textContent = "Play"; };
  const next = () => {
    if (at + 1 >= pictures.length) return stop();
    const wait = Math.min(2, pictures[at + 1].at - pictures[at].at) * 1000 / factor; // nobody waits for longer
    timer = setTimeout(() => { show(at + 1); next(); }, wait);
  };
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (at + 1 >= pictures.length) show(0);
    play.textContent = "Pause";
    next();
  });
  seek.addEventListener("input", () => { stop(); show(Number(seek.value)); });
  speed.addEventListener("click", () => {
    factor = factor === 8 ? 1 : factor * 2;
    speed.textContent = factor + "×";
  });
  show(pictures.length - 1);
  player.hidden = false;
  document.getElementById("stills").hidden = true;
})();

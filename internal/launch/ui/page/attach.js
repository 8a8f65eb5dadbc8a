import {get, key} from './ask.js';
import {Terminal} from './xterm.js';
import {FitAddon} from './fit.js';

const $ = (id) => document.getElementById(id);
const id = location.hash.slice(1);
const maxMessage = 32768; // the server takes twice as much at once

const terminal = new Terminal({
  cursorBlink: true,
  scrollback: 0, // the session keeps it: Ctrl-] [
  fontSize: 14,
  fontFamily: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
  allowProposedApi: false,
  // A link is text that the session chose. It opens nothing by itself, and its address is shown whole.
  linkHandler: {activate: (_, address) => wish(address)},
});
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open($('screen'));

function wish(address) {
  const clean = [...address].map((c) => (/[\p{C}\p{Zl}\p{Zp}]/u.test(c) ? '?' : c)).join('').slice(0, 2000);
  $('wish').querySelector('code').textContent = clean;
  $('wish').hidden = false;
  $('wish').onclick = (event) => {
    if (event.target.value === 'copy') navigator.clipboard?.writeText(clean);
    if (event.target.value) $('wish').hidden = true;
  };
}

let socket;
const open = () => socket?.readyState === WebSocket.OPEN;

function send(bytes) {
  for (let i = 0; open() && i < bytes.length; i += maxMessage) socket.send(bytes.subarray(i, i + maxMessage));
}

const size = () => JSON.stringify({Cols: terminal.cols, Rows: terminal.rows});

// What was drawn is said to the server, which sends only so much ahead: a session that writes faster than a browser draws
// must not fill the browser's memory.
function attach() {
  fit.fit();
  $('again').hidden = true;
  $('link').textContent = 'attaching …';
  terminal.reset();
  const query = new URLSearchParams({container: id, cols: terminal.cols, rows: terminal.rows});
  socket = new WebSocket(`ws://${location.host}/api/attach?${query}`, ['agent-init', 'key.' + key()]);
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => {
    $('link').textContent = '';
    document.documentElement.dataset.ready = 'yes';
    terminal.focus();
  };
  const mine = socket;
  mine.onmessage = ({data}) => terminal.write(new Uint8Array(data), () => {
    if (mine.readyState === WebSocket.OPEN) mine.send(JSON.stringify({Drawn: data.byteLength}));
  });
  socket.onclose = ({reason}) => {
    $('link').textContent = reason || 'the connection has ended';
    $('again').hidden = false;
    document.documentElement.dataset.ready = 'ended';
  };
}

let ctrl = false;
function hold(on) {
  ctrl = on;
  $('ctrl').setAttribute('aria-pressed', String(on));
}

const encoder = new TextEncoder();
terminal.onData((text) => {
  if (ctrl && /^[a-z@[\\\]^_]$/i.test(text)) text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
  hold(false);
  send(encoder.encode(text));
});
terminal.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
terminal.onResize(() => { if (open()) socket.send(size()); });
new ResizeObserver(() => fit.fit()).observe($('screen'));

document.querySelector('footer').addEventListener('click', ({target}) => {
  if (target.id === 'ctrl') hold(!ctrl);
  else if (target.value) terminal.input(target.value);
  terminal.focus();
});
$('again').addEventListener('click', attach);
addEventListener('hashchange', () => location.reload());

try {
  const {containers} = await get('/api/fleet');
  const c = containers.find((c) => c.id === id);
  $('name').textContent = c ? c.name : '';
  document.title = c ? `${c.name} · agent-init` : 'agent-init';
  if (!c) throw new Error('There is no such container any more.');
  attach();
} catch (e) {
  $('link').textContent = e.message;
}

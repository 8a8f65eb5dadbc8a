import {enter, get, post} from './ask.js';
import {age, keep, make, said} from './show.js';

const $ = (id) => document.getElementById(id);

// What moves can't be pressed for a moment: a container could let a request appear under the pointer of somebody who
// is about to press something else.
const settle = 700;
let moved = 0;
let still;
function settleAnew() {
  moved = performance.now();
  document.body.classList.add('moving');
  clearTimeout(still);
  still = setTimeout(() => document.body.classList.remove('moving'), settle);
}
const settled = (act) => () => {
  if (performance.now() - moved < settle) return tell('The list has just moved: look, and press again.');
  act();
};

let quietLater;
function tell(text) {
  $('said').textContent = text;
  $('said').hidden = false;
  clearTimeout(quietLater);
  quietLater = setTimeout(() => { $('said').hidden = true; }, 8000);
}

async function attempt(what) {
  try {
    tell(await what() || 'Done.');
  } catch (e) {
    tell(e.message);
  }
  look();
}

function sure(question, what) {
  $('sure-head').textContent = question;
  $('sure').returnValue = 'no';
  $('sure').onclose = () => { if ($('sure').returnValue === 'yes') attempt(what); };
  $('sure').showModal();
}

const answer = (c, g, word) => attempt(async () =>
  (await post('/api/answer', {container: c.id, number: g.number, target: g.target, answer: word})).said);

const button = (text, act, label = text, kind) =>
  make('button', {type: 'button', class: kind, 'aria-label': label, on: settled(act)}, text);

function ask(c, g, now) {
  const by = [`uid ${g.uid}`, g.pid && `pid ${g.pid}`].filter(Boolean).join(', ');
  return {
    id: `${c.id} ${g.number} ${g.target}`,
    same: JSON.stringify([c.name, g.reason, g.process, by, g.asked]),
    build: () => make('li', {},
      make('p', {class: 'target'}, said(g.target, 'strong')),
      make('p', {class: 'reason'}, g.reason ? said(g.reason, 'q') : 'no reason was given'),
      make('p', {class: 'by'}, said(c.name), ' · ', by, ...(g.process ? [', process ', said(g.process, 'q')] : []), ' · ',
        make('time', {datetime: g.made, 'data-age': g.made}, age(Date.parse(g.made), now)),
        g.asked > 1 ? ` · asked ${g.asked} times` : ''),
      make('p', {class: 'answers'},
        ...[['10 minutes', '10m'], ['1 hour', '1h'], ['This start', 'start'], ['For good', 'save']].map(([text, word]) =>
          button(text, () => answer(c, g, word), `allow ${g.target}: ${text}`, 'allow')),
        button('No', () => answer(c, g, 'end'), `turn down ${g.target}`, 'grave'))),
  };
}

function state(c) {
  if (!c.running) return ['ended', c.state];
  if (c.fault) return ['bad', 'no answer'];
  if (!c.known) return ['new', 'is being asked'];
  return c.healthy ? ['good', c.phase] : ['bad', c.phase || 'not healthy'];
}

function agent(c, now) {
  const [kind, word] = state(c);
  const grants = c.grants.filter((g) => g.kind !== 'request' && !g.outcome);
  return {
    id: c.id,
    same: JSON.stringify([c, kind, word]),
    build: () => make('li', {class: kind},
      make('h3', {}, said(c.name), ' ', make('small', {}, said(c.agent))),
      make('p', {}, make('span', {class: 'state'}, said(word)), ' ', said(c.dir), ' ',
        make('time', {datetime: c.created, 'data-age': c.created}, age(Date.parse(c.created), now))),
      ...[c.why, c.fault].filter(Boolean).map((text) => make('p', {class: 'fault'}, said(text))),
      ...(grants.length ? [make('ul', {class: 'grants'}, ...grants.map((g) => make('li', {},
        said(g.kind), ' ', said(g.target), g.expires ? [' until ', new Date(g.expires).toLocaleTimeString()].join('') : g.saved ? ' for good' : '', ' ',
        button('End', () => answer(c, g, 'end'), `end ${g.kind} ${g.target}`))))] : []),
      make('p', {class: 'answers'},
        ...(c.running ? [
          make('a', {class: 'button', href: `/terminal#${c.id}`, target: '_blank', rel: 'noopener'}, 'Attach'),
          button('Log', () => log(c), `log of ${c.name}`),
          button('Stop', () => sure(`Stop ${c.name}? Its agent ends.`, async () => {
            await post('/api/stop', {container: c.id});
          }), `stop ${c.name}`, 'grave'),
        ] : []))),
  };
}

async function log(c) {
  const fill = async () => {
    $('lines').textContent = '…';
    try {
      const {lines} = await get('/api/log', {container: c.id, denied: $('denied').checked ? 'yes' : ''});
      $('lines').textContent = lines.join('\n') || 'Nothing.';
    } catch (e) {
      $('lines').textContent = e.message;
    }
    $('lines').scrollTop = $('lines').scrollHeight;
  };
  $('log-head').textContent = `Log of ${c.name}`;
  $('denied').onchange = $('again').onclick = fill;
  $('log').showModal();
  await fill();
}

function show(fleet) {
  const now = Date.parse(fleet.now);
  $('fault').textContent = fleet.fault || '';
  $('fault').hidden = !fleet.fault;
  const asks = fleet.containers.filter((c) => c.running)
    .flatMap((c) => c.grants.filter((g) => g.kind === 'request' && !g.outcome).map((g) => ({c, g})))
    .sort((a, b) => Date.parse(a.g.made) - Date.parse(b.g.made)); // the newest below: nothing is pushed down by it
  $('quiet').hidden = asks.length > 0;
  const some = [keep($('asks'), asks.map(({c, g}) => ask(c, g, now))), keep($('agents'), fleet.containers.map((c) => agent(c, now)))];
  if (some.includes(true)) settleAnew();
  for (const t of document.querySelectorAll('[data-age]')) t.textContent = age(Date.parse(t.dataset.age), now);
  $('none').hidden = fleet.containers.length > 0;
  document.title = (asks.length ? `(${asks.length}) ` : '') + 'agent-init';
  const choice = $('start').elements;
  if (choice.agent.options.length !== fleet.agents.length) {
    choice.agent.replaceChildren(...fleet.agents.map((name) => make('option', {value: name}, name)));
  }
  if (!choice.dir.value && document.activeElement !== choice.dir) choice.dir.value = fleet.dir;
}

let looking = false;
async function look() {
  if (looking) return;
  looking = true;
  try {
    show(await get('/api/fleet'));
    $('link').textContent = '';
    document.querySelector('main').hidden = false;
  } catch (e) {
    $('link').textContent = e.message;
    if (e.status === 401) document.querySelector('main').hidden = true;
  }
  looking = false;
}

// entries are what agent-init takes from AGENT_INIT_ALLOW: the commas of a line with a path are those of its methods.
const entries = (text) => text.split('\n').flatMap((line) => line.includes(' /') ? [line] : line.split(','))
  .map((s) => s.trim()).filter(Boolean);

$('start').addEventListener('submit', (event) => {
  event.preventDefault();
  const {agent, dir, worktree, allow} = $('start').elements;
  const go = $('start').querySelector('button');
  go.disabled = true;
  attempt(async () => {
    try {
      const {name, notes} = await post('/api/start', {
        agent: agent.value, dir: dir.value, worktree: worktree.value.trim(), allow: entries(allow.value),
      });
      return [`${name} has started.`, ...(notes || [])].join('\n');
    } finally {
      go.disabled = false;
    }
  });
});

try {
  await enter();
  await look();
  setInterval(look, 2000);
} catch (e) {
  $('link').textContent = e.message;
}
document.documentElement.dataset.ready = 'yes';

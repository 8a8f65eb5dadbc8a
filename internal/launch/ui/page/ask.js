// What the page asks of its server. The key is kept by the browser for this origin, port included.
const place = 'agent-init-key';

export const key = () => localStorage.getItem(place) || '';

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

async function call(method, path, data) {
  const headers = {'X-Agent-Init-Key': key()};
  if (data) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, body: data && JSON.stringify(data), credentials: 'same-origin', redirect: 'error', cache: 'no-store',
    });
  } catch {
    throw new Refused(0, 'agent-init launch --ui does not answer: it may have ended');
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, said.error || `the server answered ${answer.status}`);
  return said;
}

export const get = (path, query = {}) => call('GET', path + '?' + new URLSearchParams(query));
export const post = (path, data) => call('POST', path, data);

// enter takes the token behind # for a key, and takes it out of the address.
export async function enter() {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, '', location.pathname);
  localStorage.setItem(place, (await post('/api/enter', {token})).key);
}

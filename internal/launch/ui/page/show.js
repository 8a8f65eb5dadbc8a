// Elements, made of text alone: nothing that a container says is ever read as markup.
export function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'on') e.addEventListener('click', value);
    else if (value !== false && value !== undefined) e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== ''));
  return e;
}

// said is text that a container chose: a box of its own, so that it can neither turn around nor run into what stands
// beside it.
export const said = (text, kind = 'span') => make(kind, {class: 'said', dir: 'auto'}, String(text));

export function age(from, now) {
  const s = Math.max(0, Math.round((now - from) / 1000));
  if (!Number.isFinite(s)) return '';
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor(s % 3600 / 60)}m`;
  return `${Math.floor(s / 86400)}d`;
}

// keep brings the children of a list to those that are wanted, in that order, and leaves one alone that is the same as
// before: what somebody is about to press stays where it is. It says whether any that was there has moved.
export function keep(list, wanted) {
  const place = (e) => Math.round(e.getBoundingClientRect().top + scrollY);
  const before = new Map([...list.children].map((e) => [e.dataset.id, e]));
  const tops = new Map([...before].map(([id, e]) => [id, place(e)]));
  const next = wanted.map(({id, same, build}) => {
    const old = before.get(id);
    if (old && old.dataset.same === same) return old;
    const e = build();
    e.dataset.id = id;
    e.dataset.same = same;
    return e;
  });
  for (const e of [...list.children]) if (!next.includes(e)) e.remove();
  next.forEach((e, i) => {
    if (list.children[i] !== e) list.insertBefore(e, list.children[i] || null);
  });
  return next.some((e) => !tops.has(e.dataset.id) || tops.get(e.dataset.id) !== place(e)) || before.size > next.length;
}

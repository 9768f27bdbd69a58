// dom - elements from data. Text becomes text nodes; nothing is ever parsed as markup.

// el('a', {href: '#/jobs', on: {click: f}}, 'text', child, [more]): attributes that are false or null are left out.
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'on') {
      for (const [event, fn] of Object.entries(value)) node.addEventListener(event, fn);
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(key, value === true ? '' : String(value));
    }
  }
  node.append(...nodes(children));
  return node;
}

function nodes(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => (c instanceof Node ? c : String(c)));
}

// New children; who had the focus, by its data-focus, has it again.
export function replace(parent, ...children) {
  const had = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  parent.replaceChildren(...nodes(children));
  if (had !== undefined) parent.querySelector(`[data-focus="${CSS.escape(had)}"]`)?.focus();
}

export const tag = (word, kind = word) => el('span', { class: `tag ${kind.replace(/[^a-z]+/g, '-')}` }, word);

export const section = (title, ...children) => el('section', {}, el('h2', {}, title), ...children);

export const facts = (pairs) => el('dl', { class: 'pairs' }, pairs
  .filter(([, value]) => value !== '' && value !== null && value !== undefined)
  .map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));

export const tiles = (pairs) => el('dl', { class: 'tiles' },
  pairs.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));

// columns: {head, cell(row), num, wrap}; the first column heads its row. What is too wide scrolls by itself.
export function table(caption, columns, rows, empty = 'Nothing yet.') {
  if (rows.length === 0) return el('p', { class: 'soft' }, empty);
  const kind = (c) => (c.num ? 'num' : c.wrap ? 'wrap' : null);
  const cell = (c, i, row) => el(i === 0 ? 'th' : 'td', {
    scope: i === 0 ? 'row' : null, role: i === 0 ? 'rowheader' : 'cell', class: kind(c), 'data-head': c.head,
  }, el('div', {}, c.cell(row)));
  return scroll(caption, el('table', { class: 'stack', role: 'table' }, // roles: narrow pages show rows as cards
    el('caption', {}, caption),
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' },
      columns.map((c) => el('th', { scope: 'col', role: 'columnheader', class: kind(c) }, c.head)))),
    el('tbody', { role: 'rowgroup' }, rows.map((row) => el('tr', { role: 'row' }, columns.map((c, i) => cell(c, i, row)))))));
}

export const scroll = (label, child) =>
  el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label, 'data-focus': `scroll ${label}` }, child);

export const button = (text, fn, attributes = {}) =>
  el('button', { type: 'button', 'data-focus': text, ...attributes, on: { click: fn } }, text);

export const note = (text, kind = '') => el('p', { class: `note ${kind}` }, text);

// heat - gain over size × setting: a table whose cells are coloured, so that it is its own text form.
import * as format from './format.js';
import { shade } from './model.js';
import { button, el, replace, scroll } from './dom.js';

const FIRST = 20; // settings shown at first

function words(row, bytes, cell, taken) {
  const what = `${row.setting} at ${format.bytes(bytes)}: `;
  if (cell === undefined) return `${what}not measured`;
  return `${what}${format.gain(cell.gain)} time saved (${format.interval(cell.lo, cell.hi)}), ${format.time(cell.ns)} against `
    + `${format.time(cell.base)}${taken ? '; in the profile' : ''}${cell.why ? `; ${cell.why}` : ''}`;
}

// Arrow keys go from cell to cell; only one of them is a tab stop.
function keys(grid, says) {
  const cells = () => [...grid.querySelectorAll('tbody tr')].map((tr) => [...tr.querySelectorAll('td')]);
  const go = (to) => {
    grid.querySelectorAll('td[tabindex="0"]').forEach((td) => td.setAttribute('tabindex', '-1'));
    to.setAttribute('tabindex', '0');
    to.focus();
  };
  grid.addEventListener('keydown', (e) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    const all = cells();
    const y = all.findIndex((row) => row.includes(e.target));
    if (y < 0) return;
    const x = all[y].indexOf(e.target);
    const to = move ? all[y + move[0]]?.[x + move[1]] : e.key === 'Home' ? all[y][0] : e.key === 'End' ? all[y].at(-1) : null;
    if (move || to) e.preventDefault();
    if (to) go(to);
  });
  const say = (e) => {
    const td = e.target.closest('td');
    if (td) says.textContent = td.getAttribute('aria-label');
  };
  for (const event of ['focusin', 'mouseover', 'click']) grid.addEventListener(event, say);
}

function grid(data, rows, title, says) {
  let first = true;
  const cell = (row, bytes) => {
    const c = row.cells.get(bytes);
    const taken = data.taken.get(bytes).has(row.setting);
    const td = el('td', {
      class: `${c === undefined ? 'none' : shade(c.gain)}${taken ? ' taken' : ''}`, tabindex: first ? 0 : -1, role: 'gridcell',
      'aria-label': words(row, bytes, c, taken),
    }, c === undefined ? '·' : format.signed(Math.max(-9.99, c.gain) * 100, 0));
    first = false;
    return td;
  };
  const made = el('table', { class: 'heat', role: 'grid', 'aria-label': title },
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'setting'),
      data.sizes.map((b) => el('th', { scope: 'col', class: 'num' }, format.shortBytes(b))))),
    el('tbody', {}, rows.map((row) => el('tr', {}, el('th', { scope: 'row' }, row.setting), data.sizes.map((b) => cell(row, b))))));
  keys(made, says);
  return made;
}

const KEY = [['l5', 'slower'], ['l3', ''], ['l1', ''], ['z', '±2 %'], ['g1', ''], ['g3', ''], ['g5', 'faster']];

export function heatMap(data, title) {
  if (data.rows.length === 0) return el('p', { class: 'soft' }, 'No settings were raced here.');
  const says = el('p', { class: 'says soft', 'aria-live': 'polite' }, 'Point at a cell, or go there with the arrow keys.');
  const place = el('div');
  const show = (n) => {
    const rows = data.rows.slice(0, n);
    replace(place, scroll(title, grid(data, rows, title, says)),
      rows.length < data.rows.length && button(`Show all ${data.rows.length} settings`, () => show(data.rows.length)));
  };
  show(FIRST);
  return el('figure', {}, el('figcaption', {}, title),
    el('p', { class: 'ramp' }, KEY.map(([c, text]) => el('span', { class: `swatch ${c}` }, text)),
      el('span', { class: 'swatch taken' }, 'in the profile'), ' percent of the default’s time saved'),
    place, says);
}

// page_profiles - profiles: what each gains, the evidence of each row, where it was measured, downloads, its history.
import * as api from './api.js';
import * as format from './format.js';
import * as model from './model.js';
import { backends } from './backends.js';
import { heatMap } from './heat.js';
import { plot } from './plot.js';
import { button, el, facts, note, replace, scroll, section, table, tag, tiles } from './dom.js';
import { may } from './page_jobs.js';

const MOST = 100;
const LEAST = -0.3; // of the plots of gains; what is slower than that needs no scale
const FUNCTIONAL = { 'mps-sockets': 'several ranks on one GPU', 'mps-p2p': 'several ranks on one GPU', recording: 'a recording', model: 'a model of NCCL’s costs' };

export const profileTable = (list, caption) => table(caption, [
  { head: 'Profile', cell: (p) => el('a', { href: `#/profiles/${p.id}`, 'data-focus': `profile ${p.id}` }, `${p.id}`) },
  { head: 'State', cell: (p) => tag(p.state) },
  { head: 'GPUs', cell: (p) => [p.gpu || '–', ` × ${p.ranks}`, p.nodes > 1 ? ` on ${p.nodes} nodes` : ''] },
  { head: 'Machine', cell: (p) => (p.identity ? el('code', {}, p.identity) : '–') },
  { head: 'NCCL', cell: (p) => p.nccl },
  { head: 'Measured on', cell: (p) => p.rig },
  { head: 'Made', cell: (p) => format.when(p.created_ms) },
  { head: 'Why', wrap: true, cell: (p) => p.why ?? '' },
], list, 'No profile yet: a tuning job makes one.');

export async function profiles(context) {
  const list = el('div');
  const refresh = async () => replace(list, profileTable((await api.get(`/v1/profiles?limit=${MOST}`)).profiles, 'Profiles, newest first'));
  await refresh();
  replace(context.root, el('h1', { tabindex: -1 }, 'Profiles'), section('All profiles', list));
  return { title: 'Profiles', refresh, on: (event) => event.kind === 'profile' && refresh().catch(() => {}) };
}

// --- downloads ----------------------------------------------------------------------------------

function downloads(context, row, profile, formats) {
  const kind = profile.rig.kind;
  const allow = el('input', { type: 'checkbox', id: 'allow' });
  const product = el('select', { id: 'product' }, el('option', { value: 'table' }, 'table: rows for the tuner plugin, and variables'),
    el('option', { value: 'static' }, 'static: variables only'));
  const says = el('p', { role: 'alert' });
  const get = async (path) => {
    const query = [kind !== 'nccl' && allow.checked ? `allow_rig=${kind}` : '', path.includes('/export/') ? `product=${product.value}` : '']
      .filter((x) => x).join('&');
    says.textContent = '';
    try {
      context.say(`saved ${await api.download(`/v1/profiles/${row.id}${path}${query ? `?${query}` : ''}`)}`);
    } catch (error) {
      says.textContent = error.message;
    }
  };
  return section('Downloads',
    kind !== 'nccl' && el('p', {}, allow, ' ', el('label', { for: 'allow' },
      `This was measured on ${FUNCTIONAL[kind] ?? kind}, no real node; hand it out all the same`)),
    el('div', { class: 'field' }, el('label', { for: 'product' }, 'Product'), product),
    table('Forms', [
      { head: 'Form', cell: (f) => button(f.name, () => get(`/export/${f.name}`), { class: 'small', 'data-format': f.name, 'aria-label': `Download as ${f.name}` }) },
      { head: 'For', wrap: true, cell: (f) => f.help },
    ], formats),
    el('p', { class: 'buttons' }, button('Delivery file', () => get('/table')), button('Profile document', () => save(row.id, profile))), says);
}

function save(id, profile) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(profile, null, 2)], { type: 'application/json' }));
  const link = el('a', { href: url, download: `nccltune-${id}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// --- evidence -----------------------------------------------------------------------------------

function copyable(text, what) {
  const copy = button('Copy', async (e) => {
    try {
      await navigator.clipboard.writeText(text);
      e.target.textContent = 'Copied';
    } catch { // not allowed here: marked, to be copied by hand
      getSelection().selectAllChildren(e.target.previousSibling);
    }
  }, { class: 'small', 'aria-label': `Copy the command ${what}`, 'data-focus': null });
  return el('div', { class: 'command' }, el('pre', {}, text), copy);
}

// Who else could move the bytes at this size: what each took, and what came of it.
function backendTimes(figure, bytes) {
  const list = model.rivals(figure, bytes);
  const c = figure.moved.find((x) => x.bytes === bytes);
  const caption = `Backends at ${format.bytes(bytes)}, each at its best in the race`;
  return [el('table', { class: 'rivals' }, el('caption', {}, caption),
    el('thead', {}, el('tr', {}, ['Backend', 'How', 'Time', 'Gain', '95 % interval'].map((h) => el('th', { scope: 'col', class: NUMBERS.has(h) ? 'num' : null }, h)))),
    el('tbody', {}, list.map((r) => el('tr', {}, el('th', { scope: 'row' }, r.backend), el('td', {}, r.name.slice(r.backend.length + 1) || 'its own choice'),
      el('td', { class: 'num' }, format.time(r.ns)), el('td', { class: 'num' }, format.gain(r.gain)), el('td', { class: 'num' }, format.interval(r.lo, r.hi)))))),
  c && el('p', {}, c.pairs > 0 ? `In ${c.pairs} pairs: ${c.setting} ${format.time(c.ns)} against ${c.rival ?? 'default'} ${format.time(c.rival_ns)}, `
    + `${format.gain(c.gain)} (${format.interval(...(c.interval ?? []))}), p ${format.p(c.p_adjusted)}` : `Next to NCCL: ${c.setting} ${format.time(c.ns)}`,
  ': ', tag(c.verdict), c.why ? ` ${c.why}.` : '')];
}

function evidence(c, figure) {
  const times = (c.runners_up ?? []).filter((r) => r.ns > 0);
  return el('div', { class: 'evidence' },
    facts([['Default', format.time(c.default_ns)], ['As found', c.as_found_ns && format.time(c.as_found_ns)],
      ['With the profile', c.tuned_ns && format.time(c.tuned_ns)],
      ['Gain', c.gain !== undefined && `${format.gain(c.gain)} of the time, 95 %: ${format.interval(...(c.interval ?? []))}`],
      ['p, adjusted', c.p_adjusted !== undefined && format.p(c.p_adjusted)], ['Pairs of gangs', c.pairs],
      ['Guard, worst bound', c.guard_upper !== undefined && `${(100 * c.guard_upper).toFixed(1)} % of the baseline’s time`],
      ['p95 against the baseline’s', c.p95_ratio !== undefined && `${(100 * c.p95_ratio).toFixed(1)} %`]]
      .filter(([, v]) => v !== false)),
    figure.mixed && backendTimes(figure, c.bytes),
    times.length > 0 && el('p', {}, figure.mixed ? 'In the race of NCCL’s settings: ' : 'In the race: ', times.map((r) => `${r.setting} ${format.time(r.ns)}`).join(', '), '.'),
    (c.rejected ?? []).map((r) => el('p', {}, el('code', {}, r.setting), ` rejected: ${r.why}.`)),
    (c.reproduce ?? []).length > 0 && el('p', { class: 'soft' }, 'To repeat it without nccltune: without, then with the setting'),
    (c.reproduce ?? []).map((text, i) => copyable(text, i === 0 ? 'without the setting' : 'with the setting')));
}

const NUMBERS = new Set(['Time', 'Default', 'Profile', 'Gain', '95 % interval', 'p', 'Rows', 'Copy', 'Launch']);
const head = (columns) => el('thead', {}, el('tr', {}, columns.map((c) => el('th', { scope: 'col', class: NUMBERS.has(c) ? 'num' : null }, c))));

// One row a size class; its evidence opens below it.
function classTable(figure) {
  const columns = ['Size', ...(figure.mixed ? ['Moved by', 'Time'] : []), 'Verdict', figure.mixed ? 'NCCL’s setting' : 'Setting', 'Default', 'Profile', 'Gain', '95 % interval', 'p', ''];
  const moving = (c) => {
    const m = model.mover(figure, c.bytes);
    return [el('td', {}, m === null ? 'nccl' : el('strong', {}, m.setting)),
      el('td', { class: 'num' }, format.time(m === null ? (['tuned', 'kept'].includes(c.verdict) ? c.tuned_ns : c.default_ns) : m.ns))];
  };
  const rows = figure.classes.map((c) => {
    const id = `evidence-${figure.coll}-${figure.mode}-${c.bytes}`;
    const below = el('tr', { id, hidden: true, class: 'below' }, el('td', { colspan: columns.length }, evidence(c, figure)));
    const open = button('Evidence', () => {
      below.hidden = !below.hidden;
      open.setAttribute('aria-expanded', String(!below.hidden));
    }, { class: 'small', 'aria-expanded': 'false', 'aria-controls': id, 'aria-label': `Evidence for ${format.bytes(c.bytes)}`, 'data-focus': id });
    return [el('tr', {}, el('th', { scope: 'row' }, format.bytes(c.bytes)), figure.mixed && moving(c), el('td', {}, tag(c.verdict)), el('td', {}, c.setting ?? ''),
      el('td', { class: 'num' }, format.time(c.default_ns)), el('td', { class: 'num' }, format.time(c.tuned_ns)),
      el('td', { class: 'num' }, format.gain(c.gain)), el('td', { class: 'num' }, format.interval(...(c.interval ?? []))),
      el('td', { class: 'num' }, format.p(c.p_adjusted)), el('td', {}, open)), below];
  });
  const caption = `${figure.coll}, ${figure.mode}: size classes, and the evidence of each`;
  return scroll(caption, el('table', {}, el('caption', {}, caption),
    head(columns), el('tbody', {}, rows)));
}

function pictures(figure) {
  const all = model.series(figure);
  const name = `${figure.coll}, ${figure.mode}`;
  const lines = (y, lo, hi) => all.map((s) => ({
    ...s,
    band: s.kind === 'default',
    breaks: s.kind === 'tuned' ? figure.sizes.filter((b) => !s.points.some((q) => q.bytes === b)) : [],
    points: s.points.filter((q) => Number.isFinite(q[y])).map((q) => ({ x: q.bytes, y: q[y], lo: q[lo], hi: q[hi], note: q.note, hollow: q.hollow })),
  }));
  const gains = all.filter((s) => s.kind !== 'default').flatMap((s) => s.points.flatMap((q) => [q.gain, q.gainHi])).filter(Number.isFinite);
  const tenth = (x, round) => round(10 * x) / 10;
  const size = { kind: 'size', title: 'message size' };
  return el('div', { class: 'figures' },
    plot({ title: `${name}: time`, x: size, y: { kind: 'time', title: 'time of one call' }, series: lines('ns', 'lo', 'hi') }),
    plot({
      title: `${name}: share of the default’s time that is saved`, x: size, series: lines('gain', 'gainLo', 'gainHi'),
      y: { kind: 'gain', title: 'time saved', min: Math.max(LEAST, tenth(Math.min(-0.1, ...gains), Math.floor)), max: Math.max(0.1, tenth(Math.max(...gains), Math.ceil)) },
    }));
}

function measured(list) {
  if (list.length === 0) return section('Measured', el('p', { class: 'soft' }, 'Nothing about its sizes is stored.'));
  const place = el('div');
  const show = (f) => replace(place, pictures(f),
    heatMap(model.heat(f), `${f.coll}, ${f.mode}: gain of each setting that was raced, by size`), f.classes.length > 0 && classTable(f));
  const tabs = list.map((f, i) => button(`${f.coll}, ${f.mode}`, (e) => {
    tabs.forEach((t) => t.setAttribute('aria-pressed', String(t === e.currentTarget)));
    show(f);
  }, { 'aria-pressed': String(i === 0), class: 'tab' }));
  show(list[0]);
  return section('Measured', el('p', {},
    'Filled points are in the profile; hollow ones were confirmed without being published. Bars are 95 % intervals, the band is the spread of gangs of the default.'),
  el('div', { class: 'buttons', role: 'group', 'aria-label': 'Collective and mode' }, tabs), place);
}

// --- history ------------------------------------------------------------------------------------

function historyTable(h) {
  const changes = new Map(h.changes.map((c) => [c.first_bad, c]));
  const columns = ['Check', 'When', 'Verdict', 'Gain', 'Rows', 'Copy', 'Launch', 'NCCL', 'Driver'];
  const line = (c) => el('tr', {}, el('th', { scope: 'row' }, c.check), el('td', {}, c.at), el('td', {}, tag(c.verdict)),
    el('td', { class: 'num' }, format.gain(c.gain)), el('td', { class: 'num' }, c.rows),
    el('td', { class: 'num' }, c.copy_gbps ? `${c.copy_gbps.toFixed(0)} GB/s` : '–'),
    el('td', { class: 'num' }, c.launch_us ? `${c.launch_us.toFixed(1)} µs` : '–'), el('td', {}, c.nccl), el('td', {}, c.driver));
  const turn = (c) => el('tr', { class: 'turn' }, el('td', { colspan: columns.length },
    `${c.kind === 'drift' ? 'A drift passes here' : 'A step is here'}: from ${format.gain(c.gain_before)} to ${format.gain(c.gain_after)} (p ${format.p(c.p)}). `,
    c.differs.trim() && el('pre', {}, c.differs.trim())));
  const rows = h.checks.map((c) => [changes.has(c.check) && turn(changes.get(c.check)), line(c)].filter((x) => x));
  return scroll('Checks, oldest first', el('table', {}, el('caption', {}, 'Checks, oldest first'),
    head(columns), el('tbody', {}, rows)));
}

// What checks of this profile found over time.
async function history(id) {
  let h;
  try {
    h = await api.get(`/v1/profiles/${id}/checks`);
  } catch (error) {
    if (error.status === 401 || error.status === 0) throw error;
    const none = error.status === 404 || /no check of profile/.test(error.message);
    return section('History', none ? el('p', { class: 'soft' }, 'It was not checked yet: a check holds it against the default again.') : note(error.message));
  }
  if (h.checks.length === 0) return section('History', el('p', { class: 'soft' }, 'No check measured a row yet.'));
  const at = new Map(h.checks.map((c, i) => [c.check, i + 1]));
  const points = h.checks.map((c, i) => ({ x: i + 1, y: c.gain, note: c.at, hollow: c.verdict !== 'holds' })).filter((q) => Number.isFinite(q.y));
  return section('History',
    el('p', {}, h.changes.length > 0 ? `${format.plural(h.changes.length, 'change')} that chance does not explain, at the dashed lines.`
      : `No change that ${format.plural(h.checks.length, 'check')} can tell from chance.`),
    plot({
      title: 'Gain in each check', x: { kind: 'count', title: 'checks, oldest first' }, y: { kind: 'gain', title: 'time saved' },
      series: [{ name: 'gain over all rows', kind: 'tuned', points }], marks: h.changes.map((c) => at.get(c.first_bad) - 0.5),
    }), historyTable(h));
}

// --- one ----------------------------------------------------------------------------------------

const noted = (title, list) => (list?.length > 0 ? section(title, table(title, [
  { head: 'Setting', wrap: true, cell: (n) => n.setting }, { head: 'Why', wrap: true, cell: (n) => n.why },
], list)) : null);

function about(row, profile) {
  const { count, best, classes, moved } = model.summary(profile);
  return section('In short',
    profile.rig.functional && note(`Measured on ${FUNCTIONAL[profile.rig.kind] ?? profile.rig.kind}: real only as far as that is.`),
    row.state !== 'current' && note(`${row.state}${row.why ? `: ${row.why}` : ''}`),
    tiles([['size classes faster', `${count.tuned ?? 0} of ${classes}`], ['best', best ? `${format.gain(best.gain)} at ${format.bytes(best.bytes)}` : 'the defaults win'],
      ...(profile.backends ? [['moved by another backend', moved.length]] : []), ['stay as they are', count.default ?? 0], ['not proved, or stopped by a guard', (count.undecided ?? 0) + (count.guard ?? 0) + (count.noisy ?? 0)]]),
    facts([['State', tag(row.state)], ['GPUs', `${row.gpu || '–'} × ${row.ranks}`], ['Machine', row.identity && el('code', {}, row.identity)],
      ['Placement', row.placement], ['NCCL', row.nccl], ['Driver', row.driver], ['Measured on', profile.rig.kind === row.rig ? row.rig : `${row.rig}, replayed by ${profile.rig.kind}`], ['Tuning run', row.run],
      ['Made', format.when(row.created_ms)], ['Delivery file', profile.delivery?.hash && el('code', {}, profile.delivery.hash.slice(0, 16))],
      ['Variables', Object.entries(profile.products[model.productOf(profile)]?.vars ?? {}).map(([k, v]) => `${k}=${v}`).join(' ')],
      ['Site constraints', Object.entries(profile.site ?? {}).map(([k, v]) => `${k}=${v}`).join(' ')]]));
}

function states(context, row, again) {
  if (!may(context.server, 'admin')) return null;
  const set = (state, label) => button(label, async () => {
    try {
      await api.patch(`/v1/profiles/${row.id}`, { state });
      context.say(`profile ${row.id} is ${state}`);
      again();
    } catch (error) {
      context.say(error.message);
    }
  });
  return el('p', { class: 'buttons' }, row.state === 'current' ? [set('retired', 'Retire'), set('withheld', 'Withhold')] : set('current', 'Make current'));
}

async function optional(promise, otherwise) { // what a page can do without
  try {
    return await promise;
  } catch (error) {
    if (error.status === 401 || error.status === 0) throw error;
    return otherwise;
  }
}

export async function profile(context) {
  const { id } = context;
  const fill = async () => {
    const [row] = (await api.get(`/v1/profiles?before=${id + 1}&limit=1`)).profiles;
    if (row?.id !== id) throw new api.ApiError(404, 'not_found', `There is no profile ${id}.`);
    const [document, verdicts, noise, formats, past] = await Promise.all([
      optional(api.get(`/v1/profiles/${id}`), null), optional(api.view('verdicts', row.run), []), optional(api.view('noise', row.run), []),
      optional(api.get('/v1/formats').then((f) => f.formats), [{ name: 'env', help: '' }]), history(id)]);
    const list = model.figures(document, verdicts, noise);
    replace(context.root, el('h1', { tabindex: -1 }, `Profile ${id}`),
      document === null ? section('In short', note(`Its document is not handed out: ${row.state}${row.why ? `, ${row.why}` : ''}.`)) : about(row, document),
      states(context, row, fill), measured(list), backends(document), document !== null && downloads(context, row, document, formats), past,
      noted('Not checked', document?.not_checked), noted('Tried for the whole process', document?.tried),
      noted('Not allowed here', document?.not_allowed_here), noted('Without effect', document?.inert));
  };
  await fill();
  return { title: `Profile ${id}` };
}

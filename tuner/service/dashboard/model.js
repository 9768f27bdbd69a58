// model - what the plots and the heat map show, made of a profile's document and the views `verdicts` and `noise`.
// Pure. Times are ns; gains are fractions of the default's time that are saved.

const RUNNERS = 4; // settings drawn beside default and profile
const WITH_BACKENDS = 2; // of NCCL's, where each backend has a line too
const NEAR = 1.5; // a runner-up takes at most so many defaults somewhere

const key = (coll, mode) => `${coll} ${mode}`;
const us = (x) => (x === null ? NaN : 1000 * x);
const percent = (x) => (x === null ? NaN : x / 100);
const bySize = (a, b) => a.bytes - b.bytes;

// The product whose rows are shown: the table, unless it has no evidence.
export function productOf(profile) {
  const { table, static: variables } = profile.products;
  return (table?.classes.length ?? 0) > 0 ? 'table' : (variables?.classes.length ?? 0) > 0 ? 'static' : 'table';
}

// A backend's settings begin with its name; NCCL's own do where there are others beside them.
export const named = (figure, setting) => (figure.mixed && setting ? `nccl ${setting}` : setting);
export const backendOf = (figure, setting) => (figure.mixed ? setting.split(' ')[0] : 'nccl');

// [{coll, mode, sizes, classes, arms, noise, mixed, moved, rows}], one for each collective and mode, eager before graph.
// mixed: other backends than NCCL's own path took part; moved: their classes, rows: what the profile gives them.
export function figures(profile, verdicts, noise) {
  const all = new Map();
  const b = profile?.backends;
  const mixed = (b?.asked ?? []).length > 1 || verdicts.some((v) => v.product === 'backends');
  const of = (coll, mode) => {
    if (!all.has(key(coll, mode))) {
      all.set(key(coll, mode), { coll, mode, mixed, classes: [], moved: [], rows: [], arms: new Map(), noise: new Map() });
    }
    return all.get(key(coll, mode));
  };
  for (const c of profile?.products[productOf(profile)]?.classes ?? []) of(c.coll, c.mode).classes.push(c);
  for (const c of b?.classes ?? []) of(c.coll, c.mode).moved.push(c);
  for (const r of b?.rows ?? []) of(r.coll, r.mode).rows.push(r);
  for (const v of verdicts) {
    if (v.stage !== 'race' || v.place !== 'out') continue;
    const figure = of(v.collective, v.mode);
    const name = v.product === 'backends' ? v.setting : named(figure, v.setting);
    const { arms } = figure;
    if (!arms.has(name)) arms.set(name, []);
    arms.get(name).push({
      bytes: v.bytes, ns: us(v.tuned_us), base: us(v.default_us), gain: percent(v.gain_pct), lo: percent(v.lo_pct),
      hi: percent(v.hi_pct), verdict: v.verdict, why: v.reason,
    });
  }
  for (const n of noise) {
    if (n.place === 'out' && all.has(key(n.collective, n.mode)) && n.between_gangs_pct !== null && n.gangs > 1
      && !of(n.collective, n.mode).noise.has(n.bytes)) {
      of(n.collective, n.mode).noise.set(n.bytes, n.between_gangs_pct / 100);
    }
  }
  for (const f of all.values()) {
    f.classes.sort(bySize);
    f.moved.sort(bySize);
    for (const points of f.arms.values()) points.sort(bySize);
    f.sizes = [...new Set([...f.classes, ...f.moved, ...[...f.arms.values()].flat()].map((x) => x.bytes))].sort((a, b) => a - b);
  }
  return [...all.values()].filter((f) => f.sizes.length > 0)
    .sort((a, b) => a.coll.localeCompare(b.coll) || a.mode.localeCompare(b.mode));
}

// What moves the bytes at one size: the class of the backend that the profile's row gives it, or null for NCCL.
export const mover = (figure, bytes) => (figure.rows.some((r) => bytes >= r.min_bytes && bytes <= r.max_bytes)
  ? figure.moved.find((c) => c.bytes === bytes) ?? null : null);

// What was raced at one size, fastest first: {name, backend, ns, base, gain, lo, hi, why}, the best of each backend.
export function rivals(figure, bytes) {
  const best = new Map();
  for (const [name, points] of figure.arms) {
    const x = points.find((q) => q.bytes === bytes && Number.isFinite(q.ns));
    const backend = backendOf(figure, name);
    if (x !== undefined && !(best.get(backend)?.ns <= x.ns)) best.set(backend, { ...x, name, backend });
  }
  return [...best.values()].sort((a, b) => a.ns - b.ns);
}

const point = (bytes, ns, lo, hi, more = {}) => ({ bytes, ns, lo, hi, ...more });

// Series of one figure: {name, kind, points: [{bytes, ns, lo, hi, gain, gainLo, gainHi, note}]}. The confirmed
// figures where there are any, else those of the race.
export function series(figure) {
  const base = new Map();
  const standard = named(figure, 'default');
  for (const c of figure.moved) if (c.default_ns > 0) base.set(c.bytes, c.default_ns);
  for (const a of figure.arms.get(standard) ?? []) base.set(a.bytes, a.ns);
  for (const c of figure.classes) if (c.default_ns > 0) base.set(c.bytes, c.default_ns);
  const spread = (bytes) => figure.noise.get(bytes) ?? NaN;
  const list = [{
    name: standard,
    kind: 'default',
    points: [...base].map(([bytes, ns]) => point(bytes, ns, ns / (1 + spread(bytes)), ns * (1 + spread(bytes)),
      { gain: 0, gainLo: -spread(bytes), gainHi: spread(bytes) })).sort(bySize),
  }];
  const asFound = figure.classes.filter((c) => c.as_found_ns > 0);
  if (asFound.length > 0) {
    list.push({
      name: 'as found',
      kind: 'as-found',
      points: asFound.map((c) => point(c.bytes, c.as_found_ns, NaN, NaN, { gain: 1 - c.as_found_ns / base.get(c.bytes) })),
    });
  }
  const confirmed = figure.classes.filter((c) => c.tuned_ns > 0);
  if (confirmed.length > 0) {
    list.push({
      name: figure.mixed ? 'nccl, profile' : 'profile',
      kind: 'tuned',
      points: confirmed.map((c) => {
        const [lo, hi] = c.interval ?? [NaN, NaN];
        const faster = Math.min(c.default_ns, c.as_found_ns ?? Infinity);
        return point(c.bytes, c.tuned_ns, faster * (1 - hi), faster * (1 - lo),
          { gain: c.gain ?? 1 - c.tuned_ns / faster, gainLo: lo, gainHi: hi, note: `${c.setting}, ${c.verdict}`, hollow: !['tuned', 'kept'].includes(c.verdict) });
      }),
    });
  }
  const moved = figure.moved.filter((c) => c.verdict !== 'default' && c.ns > 0);
  if (moved.length > 0) {
    list.push({
      name: 'backends, profile',
      kind: 'backend',
      points: moved.map((c) => {
        const [lo, hi] = (c.interval ?? [NaN, NaN]).map((x) => c.rival_ns * (1 - x)); // of the best of NCCL's
        return point(c.bytes, c.ns, hi, lo, {
          gain: 1 - c.ns / c.default_ns, gainLo: 1 - lo / c.default_ns, gainHi: 1 - hi / c.default_ns,
          note: `${c.setting}, ${c.verdict}`, hollow: c.verdict !== 'tuned',
        });
      }),
    });
  }
  return [...list, ...runners(figure)];
}

// The settings that come first, second or third most often; of other backends the best of each.
function runners(figure) {
  const score = new Map();
  for (const bytes of figure.sizes) {
    const here = [...figure.arms].flatMap(([name, points]) => points.filter((x) => x.bytes === bytes).map((x) => ({ name, ns: x.ns })));
    here.sort((a, b) => a.ns - b.ns).slice(0, 3).forEach(({ name }, i) => score.set(name, (score.get(name) ?? 0) + 3 - i));
  }
  const near = [...figure.arms]
    .filter(([name, points]) => name !== named(figure, 'default') && points.some((x) => x.ns < NEAR * x.base))
    .sort((a, b) => (score.get(b[0]) ?? 0) - (score.get(a[0]) ?? 0) || a[0].localeCompare(b[0]));
  const own = near.filter(([name]) => backendOf(figure, name) === 'nccl').slice(0, figure.mixed ? WITH_BACKENDS : RUNNERS);
  const first = new Map(near.map(([name]) => [backendOf(figure, name), name]).reverse());
  return [...own, ...near.filter(([name]) => backendOf(figure, name) !== 'nccl' && first.get(backendOf(figure, name)) === name).slice(0, RUNNERS)]
    .map(([name, points]) => ({
      name,
      kind: 'runner',
      points: points.map((x) => point(x.bytes, x.ns, x.base * (1 - x.hi), x.base * (1 - x.lo), { gain: x.gain, gainLo: x.lo, gainHi: x.hi })),
    }));
}

// Rows of the heat map, best first: {setting, cells: Map(bytes → {gain, lo, hi, ns, …})}, and what the profile took.
export function heat(figure) {
  const published = figure.classes.filter((c) => ['tuned', 'kept'].includes(c.verdict));
  const taken = new Map(figure.sizes.map((b) => [b, new Set()]));
  for (const c of published) taken.get(c.bytes).add(named(figure, c.setting));
  for (const c of figure.moved) if (mover(figure, c.bytes) === c) taken.get(c.bytes).add(c.setting);
  const arms = new Map([...figure.arms].map(([name, points]) => [name, [...points]]));
  for (const c of published) { // what the profile has without a race of its own: the neighbours', confirmed here
    const points = arms.get(named(figure, c.setting)) ?? [];
    if (!points.some((x) => x.bytes === c.bytes)) {
      const [lo, hi] = c.interval ?? [NaN, NaN];
      points.push({ bytes: c.bytes, ns: c.tuned_ns, base: c.default_ns, gain: c.gain, lo, hi, why: 'not raced here, confirmed' });
      arms.set(named(figure, c.setting), points);
    }
  }
  const rows = [...arms].filter(([name]) => name !== named(figure, 'default')).map(([setting, points]) => {
    const cells = new Map(points.map((x) => [x.bytes, x]));
    const taking = figure.sizes.filter((b) => taken.get(b).has(setting)).length;
    const gains = points.reduce((sum, x) => sum + Math.max(0, x.gain), 0);
    const mean = points.reduce((sum, x) => sum + Math.max(-1, x.gain), 0) / points.length;
    return { setting, cells, order: [taking, gains, mean] };
  });
  rows.sort((a, b) => {
    const i = a.order.findIndex((x, k) => x !== b.order[k]);
    return i < 0 ? a.setting.localeCompare(b.setting) : b.order[i] - a.order[i];
  });
  return { sizes: figure.sizes, rows, taken };
}

// One of eleven shades: l5 (half again as slow, or worse) … z … g5 (half of the time saved, or more).
export function shade(gain) {
  const steps = [0.02, 0.05, 0.1, 0.2, 0.35];
  const n = steps.filter((s) => Math.abs(gain) >= s).length;
  return n === 0 ? 'z' : (gain > 0 ? 'g' : 'l') + n;
}

// The profile in one line each: how many classes of which verdict, and the best gain.
export function summary(profile) {
  const { classes } = profile.products[productOf(profile)] ?? { classes: [] };
  const count = {};
  let best = null;
  for (const c of classes) {
    count[c.verdict] = (count[c.verdict] ?? 0) + 1;
    if (c.verdict === 'tuned' && (best === null || c.gain > best.gain)) best = c;
  }
  const moved = (profile.backends?.classes ?? []).filter((c) => c.verdict === 'tuned');
  return { count, best, classes: classes.length, moved };
}

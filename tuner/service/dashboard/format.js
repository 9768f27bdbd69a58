// format - figures as people read them. Pure.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(n) {
  let i = 0;
  while (n >= 1024 && i < UNITS.length - 1) {
    n /= 1024;
    i += 1;
  }
  return `${Number(n.toFixed(n < 10 ? 2 : 1))} ${UNITS[i]}`;
}

export const shortBytes = (n) => bytes(n).replace(' ', '').replace('iB', '').replace(/B$/, '');

export function time(ns) {
  if (!Number.isFinite(ns)) return '–';
  const [divisor, unit] = ns < 1e6 ? [1e3, 'µs'] : ns < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
  const x = ns / divisor;
  return `${x.toFixed(x < 10 ? 2 : x < 100 ? 1 : 0)} ${unit}`;
}

const MINUS = '\u2212';
export function signed(x, digits = 1) {
  const text = Math.abs(x).toFixed(digits);
  return Number(text) === 0 ? text : (x < 0 ? MINUS : '+') + text;
}

// A fraction of time saved.
export const gain = (x) => (Number.isFinite(x) ? `${signed(100 * x)} %` : '–');

export const interval = (lo, hi) =>
  (Number.isFinite(lo) && Number.isFinite(hi) ? `${signed(100 * lo)} to ${signed(100 * hi)} %` : '–');

export const p = (x) => (!Number.isFinite(x) ? '–' : x < 0.0001 ? '< 0.0001' : String(Number(x.toPrecision(2))));

export function duration(ms) {
  if (!Number.isFinite(ms)) return '–';
  const s = Math.round(ms / 1000);
  return s < 1 ? `${Math.round(ms)} ms` : s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
}

export const when = (ms) => (ms ? new Date(ms).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }) : '–');

export const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

// plot - line plots by Chart.js, each with its legend, keys and table. Without the library the table is all there is.
import * as format from './format.js';
import { button, el, replace, scroll } from './dom.js';

const drawn = new Set();
const scheme = matchMedia('(prefers-color-scheme: dark)');

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const faint = (color) => `${color}33`;
const pale = (color) => `${color}73`;

scheme.addEventListener('change', () => {
  for (const plot of drawn) plot.draw();
});

// Charts of a page that is left.
export function drop() {
  for (const plot of drawn) plot.end();
  drawn.clear();
}

// Intervals as bars with feet.
const intervals = {
  id: 'intervals',
  beforeDatasetsDraw(chart) {
    const { ctx } = chart;
    chart.data.datasets.forEach((set, i) => {
      if (!chart.isDatasetVisible(i)) return;
      ctx.save();
      ctx.strokeStyle = set.thin ? pale(set.borderColor) : set.borderColor;
      ctx.lineWidth = set.thin ? 1 : 1.5;
      const { left, top, width, height } = chart.chartArea;
      ctx.beginPath();
      ctx.rect(left - 4, top, width + 8, height);
      ctx.clip();
      ctx.beginPath();
      chart.getDatasetMeta(i).data.forEach((mark, k) => {
        const { lo, hi } = set.data[k];
        if (!Number.isFinite(lo) || !Number.isFinite(hi) || set.band) return;
        const [from, to] = [lo, hi].map((v) => chart.scales.y.getPixelForValue(v));
        ctx.moveTo(mark.x, from);
        ctx.lineTo(mark.x, to);
        for (const y of [from, to]) {
          ctx.moveTo(mark.x - 3, y);
          ctx.lineTo(mark.x + 3, y);
        }
      });
      ctx.stroke();
      ctx.restore();
    });
  },
};

// Lines across at x: where a history changed.
const marks = {
  id: 'marks',
  afterDatasetsDraw(chart, _, { at = [] }) {
    const { ctx, chartArea, scales } = chart;
    ctx.save();
    ctx.strokeStyle = css('--bad');
    ctx.setLineDash([5, 4]);
    for (const x of at) {
      const px = scales.x.getPixelForValue(x);
      ctx.beginPath();
      ctx.moveTo(px, chartArea.top);
      ctx.lineTo(px, chartArea.bottom);
      ctx.stroke();
    }
    ctx.restore();
  },
};

function spaced(values, most) {
  const step = Math.ceil(values.length / most);
  return values.filter((_, i) => i % step === 0);
}

// About eight powers of four (or so) over the range.
function sizeTicks(axis) {
  const powers = [];
  for (let x = 2 ** Math.ceil(Math.log2(axis.min)); x <= axis.max; x *= 2) powers.push(x);
  axis.ticks = spaced(powers, Math.max(3, Math.floor(axis.width / 62))).map((value) => ({ value }));
}

function timeTicks(axis) {
  const values = [];
  for (let p = 10 ** Math.floor(Math.log10(axis.min)); p <= axis.max; p *= 10) {
    for (const m of [1, 2, 5]) if (m * p >= axis.min && m * p <= axis.max) values.push(m * p);
  }
  axis.ticks = spaced(values, 9).map((value) => ({ value }));
}

const AXES = {
  size: { type: 'logarithmic', afterBuildTicks: sizeTicks, show: format.shortBytes, full: format.bytes },
  time: { type: 'logarithmic', afterBuildTicks: timeTicks, show: format.time, full: format.time },
  gain: { type: 'linear', show: (v) => `${format.signed(100 * v, 0)} %`, full: format.gain },
  count: { type: 'linear', show: (v) => (Number.isInteger(v) ? String(v) : ''), full: String },
};

function scale(kind, title, more) {
  const axis = AXES[kind];
  const ink = css('--soft');
  return {
    type: axis.type,
    ...(axis.afterBuildTicks ? { afterBuildTicks: axis.afterBuildTicks } : {}),
    title: { display: true, text: title, color: ink },
    grid: { color: (c) => (kind === 'gain' && c.tick?.value === 0 ? css('--zero') : css('--rule')), drawBorder: false },
    ticks: { callback: (v) => axis.show(v), color: ink, autoSkip: false, maxRotation: 0 },
    ...more,
  };
}

// The points, and where the line ends between them.
const withBreaks = (s) => [...s.points, ...(s.breaks ?? []).map((x) => ({ x, y: NaN }))].sort((a, b) => a.x - b.x);

function dataset(s, color) {
  const runner = s.kind === 'runner';
  const data = withBreaks(s);
  return {
    label: s.name,
    data,
    thin: runner,
    band: s.band,
    borderColor: color,
    backgroundColor: color,
    borderWidth: runner ? 1 : 2,
    borderDash: runner ? [4, 3] : [],
    pointRadius: s.band ? 0 : runner ? 2 : 3.5,
    pointHitRadius: 8,
    pointBackgroundColor: data.map((q) => (q.hollow ? css('--card') : color)),
    pointBorderColor: color,
    clip: 4,
  };
}

// A band without a line: from lo to hi of a series.
function band(s, color) {
  const edge = (name, fill) => ({
    label: name, data: s.points.filter((q) => Number.isFinite(q[name])).map((q) => ({ x: q.x, y: q[name] })), band: true, pointRadius: 0,
    pointHitRadius: 0, borderWidth: 0, borderColor: color, backgroundColor: faint(color), fill,
  });
  return [edge('lo', '+1'), edge('hi', false)];
}

const COLORS = { default: 's0', 'as-found': 's1', tuned: 's2', backend: 's7' };
const RUNNERS = ['s3', 's4', 's5', 's6', 's8', 's9'];

class Plot {
  // spec: {title, x: {kind, title}, y: {kind, title, min, max}, series: [{name, kind, points: [{x, y, lo, hi, note,
  // hollow}], band}], marks}
  constructor(spec) {
    this.spec = spec;
    this.hidden = new Set();
    this.chart = null;
    this.at = -1;
    this.canvas = el('canvas', {});
    this.says = el('p', { class: 'says soft', 'aria-live': 'polite' }, '\u00a0');
    this.legend = el('div', { class: 'legend', role: 'group', 'aria-label': 'Lines' });
    this.box = el('div', {
      class: 'plot', tabindex: 0, role: 'img', 'aria-label': `${spec.title}. Left and right arrow keys go through the values.`,
      on: { keydown: (e) => this.key(e), blur: () => this.point(-1) },
    }, this.canvas);
    this.xs = [...new Set(spec.series.flatMap((s) => s.points.map((q) => q.x)))].sort((a, b) => a - b);
    let next = 0;
    this.colors = spec.series.map((s) => COLORS[s.kind] ?? RUNNERS[next++ % RUNNERS.length]);
  }

  draw() {
    const { spec } = this;
    const Chart = globalThis.Chart;
    if (Chart === undefined) return;
    this.chart?.destroy();
    const colors = this.colors.map((c) => css(`--${c}`));
    const sets = spec.series.map((s, i) => dataset(s, colors[i])).reverse(); // what comes first is drawn on top
    spec.series.forEach((s, i) => {
      if (s.band) sets.push(...band(s, colors[i]));
    });
    this.chart = new Chart(this.canvas, {
      type: 'line',
      data: { datasets: sets },
      plugins: [intervals, marks],
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        parsing: false,
        interaction: { mode: 'x', intersect: false },
        scales: { x: scale(spec.x.kind, spec.x.title, this.range()), y: scale(spec.y.kind, spec.y.title, { min: spec.y.min, max: spec.y.max }) },
        plugins: {
          legend: { display: false },
          marks: { at: spec.marks ?? [] },
          tooltip: {
            filter: (item) => item.dataset.pointHitRadius > 0,
            itemSort: (a, b) => b.datasetIndex - a.datasetIndex,
            callbacks: {
              title: (items) => (items.length > 0 ? AXES[spec.x.kind].full(items[0].raw.x) : ''),
              label: (item) => this.words(item.dataset.label, item.raw),
            },
          },
        },
      },
    });
    for (const name of this.hidden) this.show(name, false);
  }

  // A little room beside the first and the last point.
  range() {
    const [first, last] = [this.xs[0], this.xs.at(-1)];
    return this.spec.x.kind === 'size' ? { min: first / 1.3, max: last * 1.3 } : { min: first - 0.5, max: last + 0.5 };
  }

  words(name, q) {
    const { full } = AXES[this.spec.y.kind];
    const range = Number.isFinite(q.lo) && Number.isFinite(q.hi) ? ` (${full(q.lo)} to ${full(q.hi)})` : '';
    return `${name}${q.note ? ` [${q.note}]` : ''}: ${full(q.y)}${range}`;
  }

  show(name, on) {
    this.chart?.data.datasets.forEach((set, i) => {
      if (set.label === name) this.chart.setDatasetVisibility(i, on);
    });
    this.chart?.update();
  }

  key(e) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (step !== undefined) {
      e.preventDefault();
      this.point(Math.max(0, Math.min(this.xs.length - 1, this.at + step)));
    } else if (e.key === 'Escape') {
      this.point(-1);
    }
  }

  // The values at one x, said and shown.
  point(at) {
    this.at = at;
    const here = this.spec.series.filter((s) => !this.hidden.has(s.name))
      .flatMap((s) => s.points.filter((q) => q.x === this.xs[at]).map((q) => this.words(s.name, q)));
    this.says.textContent = at < 0 ? '\u00a0' : `${AXES[this.spec.x.kind].full(this.xs[at])}: ${here.join('; ')}`;
    if (this.chart === null) return;
    const active = [];
    this.chart.data.datasets.forEach((set, datasetIndex) => {
      const index = set.data.findIndex((q) => q.x === this.xs[at] && Number.isFinite(q.y));
      if (at >= 0 && index >= 0 && set.pointHitRadius > 0 && this.chart.isDatasetVisible(datasetIndex)) active.push({ datasetIndex, index });
    });
    this.chart.tooltip.setActiveElements(active, { x: 0, y: 0 });
    this.chart.update();
  }

  buttons() {
    replace(this.legend, this.spec.series.map((s, i) => button(s.name, (e) => {
      const on = this.hidden.delete(s.name);
      if (!on) this.hidden.add(s.name);
      e.currentTarget.setAttribute('aria-pressed', String(on));
      this.show(s.name, on);
    }, { class: `key ${this.colors[i]} ${s.kind}`, 'aria-pressed': 'true' })));
  }

  table() {
    const { spec } = this;
    return el('details', { open: globalThis.Chart === undefined }, el('summary', {}, 'As a table'),
      scroll(`Table: ${spec.title}`, el('table', {},
        el('caption', {}, spec.title),
        el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, spec.x.title),
          spec.series.map((s) => el('th', { scope: 'col', class: 'num' }, s.name)))),
        el('tbody', {}, this.xs.map((x) => el('tr', {}, el('th', { scope: 'row' }, AXES[spec.x.kind].full(x)),
          spec.series.map((s) => {
            const q = s.points.find((r) => r.x === x);
            return el('td', { class: 'num' }, q === undefined ? '' : this.words('', q).slice(q.note ? 1 : 2));
          })))))));
  }

  end() {
    this.chart?.destroy();
    this.chart = null;
  }
}

// The element of a plot; drawn once it is in the page.
export function plot(spec) {
  const made = new Plot(spec);
  const figure = el('figure', {}, el('figcaption', {}, spec.title), made.legend, made.box, made.says, made.table());
  made.buttons();
  for (const old of drawn) {
    if (old.chart !== null && !old.box.isConnected) { // its place was taken
      old.end();
      drawn.delete(old);
    }
  }
  drawn.add(made);
  new ResizeObserver((_, observer) => { // is told once it has a size, which is when it is in the page
    if (made.box.clientWidth === 0) return;
    observer.disconnect();
    made.draw();
  }).observe(made.box);
  return figure;
}

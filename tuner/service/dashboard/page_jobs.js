// page_jobs - the queue: what waits, runs and is over; a new job; one job as it goes.
import * as api from './api.js';
import * as format from './format.js';
import { button, el, facts, note, replace, section, table, tag } from './dom.js';

const STAGES = ['preflight', 'race', 'gate', 'refine', 'confirm', 'publish'];
const RANK = { none: 0, read: 1, submit: 2, admin: 3 };
const MOST = 100;

export const may = (server, role) => RANK[server.you.role] >= RANK[role];
const over = (j) => ['done', 'failed', 'cancelled'].includes(j.state);

function progress(j) {
  const p = j.progress;
  if (j.state !== 'running' || p === undefined) return j.reason || (j.state === 'done' ? 'over' : '');
  const percent = Math.round(100 * (p.done ?? 0));
  return el('div', { class: 'progress' },
    el('progress', { max: 100, value: percent, 'aria-label': `job ${j.id}, ${p.stage}` }),
    el('span', {}, `${p.stage} ${percent} %`, p.trials ? `, ${format.plural(p.trials, 'trial')}` : '',
      p.left_ms ? `, ${format.duration(p.left_ms)} left` : ''));
}

const outcome = (j) => (j.profile ? el('a', { href: `#/profiles/${j.profile}`, 'data-focus': `profile ${j.id}` }, `profile ${j.profile}`) : '');

// Cancel, resume or accept: what is open to this job and this person.
function actions(j, context, changed) {
  if (!may(context.server, 'submit')) return '';
  const act = async (what, word) => {
    try {
      changed(await api.post(`/v1/jobs/${j.id}/${what}`));
      context.say(`job ${j.id}: ${word}`);
    } catch (error) {
      context.say(error.message);
      changed(await api.get(`/v1/jobs/${j.id}`));
    }
  };
  const verb = ['queued', 'running', 'proposed'].includes(j.state) ? [['cancel', j.state === 'proposed' ? 'Decline' : 'Cancel', 'cancelled']] : [];
  if (j.state === 'proposed') verb.unshift(['resume', 'Accept', 'queued']);
  if (['failed', 'cancelled'].includes(j.state)) verb.push(['resume', 'Resume', 'queued again']);
  return verb.map(([what, label, word]) => button(label, () => act(what, word),
    { 'data-focus': `${what} ${j.id}`, 'aria-label': `${label} job ${j.id}`, class: 'small' }));
}

export const jobTable = (list, context, changed, caption) => table(caption, [
  { head: 'Job', cell: (j) => el('a', { href: `#/jobs/${j.id}`, 'data-focus': `job ${j.id}` }, `${j.id}`) },
  { head: 'State', cell: (j) => tag(j.state) },
  { head: 'Rig', cell: (j) => j.rig },
  { head: 'Kind', cell: (j) => j.kind },
  { head: 'Progress', wrap: true, cell: progress },
  { head: 'Outcome', cell: outcome },
  { head: 'By', cell: (j) => j.by ?? '' },
  { head: 'Asked', cell: (j) => format.when(j.created_ms) },
  { head: 'Actions', cell: (j) => actions(j, context, changed) },
], list, 'No jobs yet.');

// A list of jobs that follows the events: {node, on, refresh}.
export async function liveJobs(context, caption, limit) {
  const node = el('div');
  let byId = new Map();
  let due = false;
  const draw = () => replace(node, jobTable([...byId.values()].sort((a, b) => b.id - a.id).slice(0, limit), context, changed, caption));
  function changed(j) {
    byId.set(j.id, j);
    draw();
  }
  const load = async () => {
    const { jobs: list } = await api.get(`/v1/jobs?limit=${limit}`);
    byId = new Map(list.map((j) => [j.id, j]));
    draw();
  };
  const soon = () => { // many events, one look
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      if (context.alive()) load().catch(() => {}); // the next event or poll looks again
    }, 150);
  };
  await load();
  return {
    node,
    refresh: load,
    on(event) {
      const j = byId.get(event.data.job);
      if (event.kind === 'progress' && j !== undefined && j.state === 'running') {
        j.progress = event.data;
        draw();
      } else if (event.kind === 'job' || event.kind === 'progress') {
        soon();
        if (event.kind === 'job') context.say(`job ${event.data.job}: ${event.data.state}`);
      }
    },
  };
}

// --- a new job ----------------------------------------------------------------------------------

const option = (value, text = value) => el('option', { value }, text);
function field(label, id, input, help = '') {
  input.id = id;
  if (help) input.setAttribute('aria-describedby', `${id}-help`);
  return el('div', { class: 'field' }, el('label', { for: id }, label), input, help && el('small', { id: `${id}-help`, class: 'soft' }, help));
}

function form(context, added) {
  const { rigs } = context.server;
  if (!may(context.server, 'submit')) return note(`Your role is ${context.server.you.role}: jobs are put in by those with submit or admin.`);
  if (rigs.length === 0) return note('The configuration has no [rig …] section, so there is nothing that a job could run on.');
  const says = el('p', { role: 'alert' });
  const rig = el('select', { required: true }, rigs.map((r) => option(r.name, `${r.name} (${r.rig}${r.functional ? ', no real node' : ''})`)));
  const effort = el('select', {}, option('', 'as configured'), ['quick', 'standard', 'thorough'].map((w) => option(w)));
  const kind = el('select', {}, option('tune', 'tune: find what is faster'), option('check', 'check: does the profile still hold?'));
  const sizes = el('input', { type: 'text', placeholder: 'as configured', pattern: '[0-9.KMG:,iB ]+', autocomplete: 'off' });
  const budget = el('input', { type: 'number', min: 1, max: 10080, placeholder: 'none' });
  const priority = el('input', { type: 'number', min: -100, max: 100, value: 0 });
  const submit = async (e) => {
    e.preventDefault();
    const body = { rig: rig.value, kind: kind.value, priority: Number(priority.value) };
    if (effort.value) body.effort = effort.value;
    if (sizes.value.trim()) body.sizes = sizes.value.trim();
    if (budget.value) body.budget_s = 60 * Number(budget.value);
    says.textContent = '';
    try {
      const j = await api.post('/v1/jobs', body);
      context.say(`job ${j.id} is in the queue`);
      added(j);
    } catch (error) {
      says.textContent = error.message;
    }
  };
  return el('form', { class: 'job', id: 'new-job', on: { submit } },
    field('Rig', 'job-rig', rig), field('Kind', 'job-kind', kind), field('Effort', 'job-effort', effort),
    field('Sizes', 'job-sizes', sizes, '1K:64M, or 4K,1M'), field('Budget, minutes', 'job-budget', budget),
    field('Priority', 'job-priority', priority, '−100 to 100, high first'),
    el('div', { class: 'field go' }, el('button', { type: 'submit', class: 'main', id: 'job-go' }, 'Put into the queue')), says);
}

export async function jobs(context) {
  const live = await liveJobs(context, 'Jobs, newest first', MOST);
  replace(context.root, el('h1', { tabindex: -1 }, 'Jobs'), section('New job', form(context, () => live.refresh())), section('Queue', live.node));
  return { title: 'Jobs', on: live.on, refresh: live.refresh };
}

// --- one ----------------------------------------------------------------------------------------

function stages(j) {
  if (j.kind !== 'tune' || j.state !== 'running') return null;
  const at = STAGES.indexOf(j.progress?.stage);
  return el('ol', { class: 'stages', 'aria-label': 'Stages' }, STAGES.map((s, i) =>
    el('li', { class: i < at ? 'past' : i === at ? 'now' : null, 'aria-current': i === at ? 'step' : null }, s)));
}

export async function job(context) {
  const state = el('div', { id: 'job-state' });
  const log = el('div');
  const lines = [];
  let j = await api.get(`/v1/jobs/${context.id}`);
  const draw = () => {
    const p = j.progress;
    replace(state,
      facts([['State', tag(j.state)], ['Why', j.reason], ['Rig', j.rig], ['Kind', j.kind], ['Asked by', j.by], ['Because of', j.cause],
        ['Asked', format.when(j.created_ms)], ['Began', j.started_ms && format.when(j.started_ms)],
        ['Took', j.finished_ms && j.started_ms && format.duration(j.finished_ms - j.started_ms)], ['Attempts', j.attempts || null],
        ['Asked for', Object.entries(j.ask).map(([k, v]) => `${k} ${v}`).join(', ')],
        ['Best so far', p?.best && `${format.gain(p.best_gain)}: ${p.best}`],
        ['Profile', j.profile && el('a', { href: `#/profiles/${j.profile}`, id: 'job-profile' }, `profile ${j.profile}`)]]),
      stages(j), j.state === 'running' && progress(j),
      j.state === 'done' && j.kind === 'tune' && !j.profile && note('This job made no profile.'),
      el('p', { class: 'buttons' }, actions(j, context, changed)));
  };
  function changed(fresh) {
    j = fresh;
    draw();
  }
  const load = async () => changed(await api.get(`/v1/jobs/${context.id}`));
  const write = (text) => {
    lines.push(`${new Date().toLocaleTimeString()}  ${text}`);
    replace(log, el('ol', { class: 'log' }, lines.slice(-200).map((t) => el('li', {}, t))));
  };
  draw();
  replace(log, el('p', { class: 'soft' }, over(j) ? 'It is over.' : 'Nothing yet since this page was opened.'));
  replace(context.root, el('h1', { tabindex: -1 }, `Job ${context.id}`), section('State', state), section('As it happens', log));
  return {
    title: `Job ${context.id}`,
    refresh: load,
    on(event) {
      if (event.data.job !== context.id) return;
      if (event.kind === 'progress') {
        j.progress = event.data;
        if (event.data.begins) write(`${event.data.stage} begins, ${format.plural(event.data.trials, 'trial')} so far`);
        draw();
        if (j.state !== 'running') load().catch(() => {});
      } else if (event.kind === 'job') {
        write(`${event.data.state}${event.data.reason ? `: ${event.data.reason}` : ''}`);
        context.say(`job ${context.id}: ${event.data.state}`);
        load().catch(() => {}); // polling looks again
      }
    },
  };
}

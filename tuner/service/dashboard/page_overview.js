// page_overview - the first page: state, this machine, jobs, profiles, what happened.
import * as api from './api.js';
import * as format from './format.js';
import { el, replace, section, table, tiles } from './dom.js';
import { liveJobs } from './page_jobs.js';
import { machineTable, thisMachine } from './page_machines.js';
import { profileTable } from './page_profiles.js';

const FEW = 6;

const happened = (e) => Object.entries(e.data ?? {}).filter(([k, v]) => v !== '' && k !== 'job' && typeof v !== 'object')
  .map(([k, v]) => (k === 'state' || k === 'text' || k === 'what' ? v : `${k} ${v}`)).join(', ') || e.text || '';

const logTable = (events) => table('What happened, newest first', [
  { head: 'When', cell: (e) => format.when(e.at_ms) },
  { head: 'What', cell: (e) => [e.kind, ' ', e.kind === 'job' ? e.data?.job : ''] },
  { head: 'How', wrap: true, cell: happened },
], events);

export async function overview(context) {
  const [mine, live] = await Promise.all([thisMachine(context), liveJobs(context, 'Latest jobs', FEW)]);
  const [numbers, profiles, machines, log] = [el('div'), el('div'), el('div'), el('div')];
  let due = false;
  const refresh = async () => {
    const [server, p, t, l] = await Promise.all([api.get('/v1/server'), api.get('/v1/profiles?limit=100'), api.get('/v1/topologies'),
      api.get(`/v1/log?limit=${2 * FEW}`)]);
    const current = p.profiles.filter((x) => x.state === 'current').length;
    replace(numbers, tiles([['running', server.running], ['waiting', server.waiting], ['proposed', server.proposed],
      ['current profiles', current], ['machines', t.topologies.length], ['up since', format.when(server.started_ms)]]));
    replace(profiles, profileTable(p.profiles.slice(0, FEW), 'Newest profiles'));
    replace(machines, machineTable(t.topologies.slice(0, FEW)));
    replace(log, logTable(l.events));
  };
  await refresh();
  replace(context.root, el('h1', { tabindex: -1 }, 'Overview'), numbers,
    el('div', { class: 'columns' }, section('This machine', mine.node), section('Machines', machines)),
    section('Jobs', live.node), section('Profiles', profiles), section('Log', log));
  return {
    title: 'Overview',
    refresh: () => Promise.all([mine.refresh(), live.refresh(), refresh()]),
    on(event) {
      live.on(event);
      if (event.kind === 'progress' || due) return;
      due = true;
      setTimeout(() => {
        due = false;
        if (context.alive()) Promise.all([refresh(), mine.refresh()]).catch(() => {}); // the next event looks again
      }, 400);
    },
  };
}

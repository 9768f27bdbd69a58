// page_machines - this machine as it was last seen, and all that jobs ran on.
import * as api from './api.js';
import * as format from './format.js';
import { button, el, facts, note, replace, scroll, section, table, tag } from './dom.js';
import { may } from './page_jobs.js';

const findings = (list) => table('Health findings', [
  { head: 'Finding', cell: (f) => tag(f.finding ?? f.name ?? String(f), f.unhealthy ? 'unhealthy' : 'noted') },
  { head: 'Where', cell: (f) => f.device ?? '' },
  { head: 'What', wrap: true, cell: (f) => f.text ?? '' },
], list, 'Healthy: nothing was found.');

const word = (m) => {
  const bad = m.health?.filter((f) => f.unhealthy).length ?? 0;
  return bad > 0 ? tag(format.plural(bad, 'finding'), 'unhealthy') : m.seen ? tag('healthy') : tag(m.state);
};

// {node, refresh}: the card of this machine.
export async function thisMachine(context) {
  const node = el('div');
  const draw = (m) => replace(node,
    m.why && note(m.why),
    facts([['State', [word(m), m.seen && m.state !== 'settled' && ` ${m.state}`]], ['Identity', m.identity && el('code', {}, m.identity)], ['Driver', m.driver],
      ['CUDA', m.cuda], ['NCCL', m.nccl], ['Busy GPUs', m.load_known ? (m.busy ? `mask 0x${m.busy.toString(16)}` : 'none') : null],
      ['Last seen', format.when(m.seen_ms)]]),
    m.seen && el('details', { open: m.health.length > 0 }, el('summary', {}, 'Health'), findings(m.health)),
    m.groups && el('details', {}, el('summary', {}, 'Identity by groups'), table('SHA-256 of each group of hardware facts', [
      { head: 'Group', cell: ([name]) => name }, { head: 'SHA-256', cell: ([, hash]) => el('code', {}, String(hash).slice(0, 16)) },
    ], Object.entries(m.groups))),
    may(context.server, 'submit') && el('p', { class: 'buttons' }, button('Look now', async () => {
      try {
        draw(await api.post('/v1/machine/look'));
        context.say('looking at the machine');
      } catch (error) {
        context.say(error.message);
      }
    })));
  const refresh = async () => draw(await api.get('/v1/machine'));
  await refresh();
  return { node, refresh };
}

export const machineTable = (list) => table('Machines that jobs ran on', [
  { head: 'Identity', cell: (t) => el('a', { href: `#/machines/${t.id}`, 'data-focus': `machine ${t.id}` }, el('code', {}, t.identity)) },
  { head: 'GPUs', cell: (t) => t.gpu ?? '–' },
  { head: 'Jobs', num: true, cell: (t) => t.jobs ?? 0 },
  { head: 'Health', cell: (t) => ((t.health?.length ?? 0) > 0 ? tag(format.plural(t.health.length, 'finding'), 'unhealthy') : tag('healthy')) },
], list, 'No job has run yet.');

export async function machines(context) {
  const mine = await thisMachine(context);
  const all = el('div');
  const refresh = async () => {
    const { topologies } = await api.get('/v1/topologies');
    replace(all, machineTable(topologies));
    await mine.refresh();
  };
  await refresh();
  replace(context.root, el('h1', { tabindex: -1 }, 'Machines'), section('This machine', mine.node), section('All machines', all));
  return { title: 'Machines', refresh, on: (event) => event.kind === 'machine' && refresh().catch(() => {}) };
}

export async function machine(context) {
  const t = await api.get(`/v1/topologies/${context.id}`);
  const health = (t.health ?? []).map((f) => (typeof f === 'string' ? { finding: f, unhealthy: true } : f));
  replace(context.root, el('h1', { tabindex: -1 }, `Machine ${t.identity}`),
    section('What it is', facts([['Identity', el('code', {}, t.identity)], ['Known groups', t.mask]])),
    section('Health', findings(health)),
    section('Topology', t.drawing ? scroll('Drawing of the topology', el('pre', {}, t.drawing)) : el('p', { class: 'soft' }, 'No topology was kept with its jobs.')));
  return { title: `Machine ${t.identity}` };
}

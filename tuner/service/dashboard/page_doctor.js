// page_doctor - what each live process of the service's machine really got.
import * as api from './api.js';
import * as format from './format.js';
import { button, el, facts, note, replace, section, table, tag } from './dom.js';

const MANY = 200;

const version = (n) => (n ? `${Math.trunc(n / 10000)}.${Math.trunc(n / 100) % 100}.${n % 100}` : '');

const processes = (list) => table('Processes that have NCCL, a GPU or a receipt', [
  { head: 'Process', cell: (p) => p.pid },
  { head: 'Name', cell: (p) => p.name },
  { head: 'Verdict', cell: (p) => tag(p.verdict) },
  { head: 'Profile', cell: (p) => (p.profile ? el('code', {}, p.profile.slice(0, 12)) : '') },
  { head: 'NCCL', cell: (p) => version(p.nccl_version) },
  { head: 'Communicators', num: true, cell: (p) => p.communicators },
  { head: 'Why', wrap: true, cell: (p) => p.reasons.map((r) => el('div', {}, r)) },
  { head: 'Library', wrap: true, cell: (p) => p.nccl.map((path) => el('div', {}, el('code', {}, path))) },
], list.slice(0, MANY), 'No process here has NCCL and a GPU, or a receipt.');

const calls = (list) => table('What NCCL executed, by size class', [
  { head: 'Collective', cell: (c) => c.collective },
  { head: 'Up to', num: true, cell: (c) => format.bytes(c.up_to_bytes) },
  { head: 'In the table', cell: (c) => (c.in_table ? 'yes' : 'no') },
  { head: 'By the table', num: true, cell: (c) => c.by_table },
  { head: 'Left to NCCL', num: true, cell: (c) => c.left },
  { head: 'In groups', num: true, cell: (c) => c.in_groups },
  { head: 'Executed', wrap: true, cell: (c) => c.executed.map((x) => el('div', {}, `${x.cell}: ${format.plural(x.eager, 'call')}, ${x.captured} captured, `
    + `${x.min_channels === x.max_channels ? format.plural(x.min_channels, 'channel') : `${x.min_channels} to ${x.max_channels} channels`}`)) },
], list, 'No call was counted.');

export async function doctor(context) {
  const found = el('div');
  const at = el('p', { class: 'soft', role: 'status' });
  const refresh = async () => {
    const d = await api.get('/v1/doctor');
    replace(found,
      section('Verdict', d.ranks_disagree && note('The ranks of a job disagree about what was applied.', 'bad'),
        el('p', { id: 'doctor-verdict', class: d.applied ? 'good' : null }, d.verdict),
        facts([['Active profile', d.active ? el('code', {}, d.active.slice(0, 12)) : 'none on this host'],
          ['Applied in', `${d.applied_in} of ${format.plural(d.counted, 'process', 'processes')}`],
          ['Not looked into', d.unreadable > 0 ? `${format.plural(d.unreadable, 'process', 'processes')}: the service may not` : null]])),
      section('Processes', processes(d.processes)), section('Calls', calls(d.calls)));
    at.textContent = `Looked at ${new Date().toLocaleTimeString()}.`;
  };
  await refresh();
  const again = async () => {
    try {
      await refresh();
    } catch (error) {
      at.textContent = error.message;
    }
  };
  replace(context.root, el('h1', { tabindex: -1 }, 'Doctor'),
    el('p', {}, 'Did the settings reach the workers of this machine, and what did NCCL then execute?'),
    el('p', { class: 'buttons' }, button('Look again', again)), at, found);
  return { title: 'Doctor' };
}

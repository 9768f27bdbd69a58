// backends - who moves the bytes, where that is not NCCL on plain buffers: the profile's rows and their evidence.
import * as format from './format.js';
import { section, table, tag } from './dom.js';

const sizes = (r) => (r.min_bytes === r.max_bytes ? format.bytes(r.min_bytes) : `${format.bytes(r.min_bytes)} to ${format.bytes(r.max_bytes)}`);

export function backends(profile) {
  const b = profile?.backends;
  if (!b) return null;
  return section('Backends',
    table('Which backend moves the bytes; everything else stays NCCL’s', [
      { head: 'Sizes', cell: sizes }, { head: 'Collective', cell: (r) => `${r.coll}, ${r.mode}` }, { head: 'Backend', cell: (r) => r.backend },
      { head: 'How', cell: (r) => [r.algo, r.proto, r.blocks && `${r.blocks} blocks`].filter((x) => x).join('/') || 'its own choice' },
      { head: 'Adds up', cell: (r) => r.numerics }, { head: 'Bits', cell: (r) => `${r.bits} as NCCL’s` },
      { head: 'Right for', wrap: true, cell: (r) => r.serves.join(', ') },
    ], b.rows, 'NCCL stays: no other backend was proved faster.'),
    table('Evidence', [
      { head: 'Size', cell: (c) => format.bytes(c.bytes) }, { head: 'Collective', cell: (c) => `${c.coll}, ${c.mode}` },
      { head: 'Verdict', cell: (c) => tag(c.verdict) }, { head: 'Backend', cell: (c) => c.setting },
      { head: 'Time', num: true, cell: (c) => format.time(c.ns) }, { head: 'Against', cell: (c) => `${c.rival ?? 'default'} ${format.time(c.rival_ns ?? c.default_ns)}` },
      { head: 'Gain', num: true, cell: (c) => format.gain(c.gain) }, { head: '95 % interval', num: true, cell: (c) => format.interval(...(c.interval ?? [])) },
      { head: 'p', num: true, cell: (c) => format.p(c.p_adjusted) }, { head: 'Why', wrap: true, cell: (c) => c.why ?? '' },
    ], b.classes, 'None was measured.'),
    b.notes?.length > 0 && table('Not to be had, ruled out, or the same as another', [
      { head: 'Backend', cell: (n) => n.setting }, { head: 'Why', wrap: true, cell: (n) => n.why },
    ], b.notes));
}

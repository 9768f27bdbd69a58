// app - the frame of the dashboard: pages by the address's fragment, the stream of events, the question for a token.
import * as api from './api.js';
import { button, el, note, replace } from './dom.js';
import { drop } from './plot.js';
import { overview } from './page_overview.js';
import { job, jobs } from './page_jobs.js';
import { profile, profiles } from './page_profiles.js';
import { machine, machines } from './page_machines.js';
import { doctor } from './page_doctor.js';

const NAV = [['/', 'Overview'], ['/jobs', 'Jobs'], ['/profiles', 'Profiles'], ['/machines', 'Machines'], ['/doctor', 'Doctor']];
// A page: async (context) → {title, on(event)?, refresh()?}; it fills context.root.
const ROUTES = [
  [/^\/$/, overview], [/^\/jobs$/, jobs], [/^\/jobs\/([1-9]\d*)$/, job], [/^\/profiles$/, profiles],
  [/^\/profiles\/([1-9]\d*)$/, profile], [/^\/machines$/, machines], [/^\/machines\/([1-9]\d*)$/, machine], [/^\/doctor$/, doctor],
];
const POLL_MS = 5000; // while the stream is lost

const $ = (id) => document.getElementById(id);
const content = $('content');
let current = null; // {path, page, live}
let streaming = false;
let begun = false; // the stream, with the first page that could be shown

const say = (text) => {
  $('said').textContent = text;
};

// --- the token ----------------------------------------------------------------------------------

api.setAsker((refused) => new Promise((done) => {
  const dialog = $('ask');
  $('ask-why').textContent = refused ? 'The service does not know this token. Another one?'
    : 'This service answers those who have a token; its operator hands them out.';
  $('ask-token').value = '';
  dialog.returnValue = '';
  $('ask-form').onsubmit = (e) => {
    e.preventDefault();
    dialog.close('ok');
  };
  $('ask-cancel').onclick = () => dialog.close('');
  dialog.onclose = () => done(dialog.returnValue === 'ok' ? $('ask-token').value.trim() : null);
  dialog.showModal();
}));

// --- pages --------------------------------------------------------------------------------------

function trouble(error, again) {
  const refused = error.status === 403 ? ' Another token may.' : '';
  return el('section', { class: 'trouble' }, el('h1', { tabindex: -1 }, 'This could not be shown'), note(error.message + refused, 'bad'),
    el('p', { class: 'buttons' }, button('Try again', again),
      (error.status === 401 || error.status === 403) && button('Another token', () => {
        api.forget();
        again();
      })));
}

function frame(path) {
  replace($('nav'), NAV.map(([to, name]) => {
    const here = to === '/' ? path === '/' : path.startsWith(to);
    return el('li', {}, el('a', { href: `#${to}`, 'aria-current': here ? 'page' : null, 'data-focus': to }, name));
  }));
}

async function show(moved) {
  const path = location.hash.replace(/^#/, '') || '/';
  const [pattern, make] = ROUTES.find(([r]) => r.test(path)) ?? [null, null];
  const mine = { path, page: null, live: true };
  if (current !== null) current.live = false;
  current = mine;
  drop();
  frame(path);
  const root = el('div', { class: 'page' });
  const context = {
    root, id: Number(pattern?.exec(path)?.[1] ?? 0), say, alive: () => mine.live, server: null,
  };
  content.setAttribute('aria-busy', 'true');
  try {
    if (make === null) throw new api.ApiError(404, 'not_found', `There is no page ${path}.`);
    context.server = await api.get('/v1/server');
    const page = await make(context);
    if (!mine.live) return;
    mine.page = page;
    replace(content, root);
    document.title = `${page.title} – nccltune`;
    $('foot').textContent = `nccltune ${context.server.version}, as ${context.server.you.name || 'nobody'} (${context.server.you.role})`;
    if (!begun) stream();
  } catch (error) {
    if (!mine.live) return;
    if (!(error instanceof api.ApiError)) console.error(error);
    if (!begun) $('state').textContent = 'not connected';
    document.title = 'nccltune';
    replace(content, trouble(error, () => show(false)));
  }
  content.removeAttribute('aria-busy');
  if (moved) {
    content.querySelector('h1')?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

// What a page shows again, because something happened; its errors are no reason to take the page away.
async function refresh() {
  const mine = current;
  if (mine === null) return;
  if (mine.page === null) { // it could not be shown: perhaps now
    if (content.querySelector('.trouble')) await show(false);
    return;
  }
  try {
    await mine.page.refresh?.();
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
  }
}

// --- events -------------------------------------------------------------------------------------

const STATES = { live: 'live', again: 'live', lost: 'connection lost, trying again' };

function stream() {
  begun = true;
  api.events((event) => current?.page?.on?.(event), (state) => {
    streaming = state !== 'lost';
    const words = STATES[state];
    if ($('state').textContent !== words) $('state').textContent = words;
    $('state').className = `state ${streaming ? 'live' : 'lost'}`;
    if (state === 'again') refresh(); // what was missed
  });
  setInterval(() => {
    if (!streaming && !document.hidden && !$('ask').open) refresh();
  }, POLL_MS);
}

document.querySelector('.skip').addEventListener('click', (e) => { // the address names the page, not a place in it
  e.preventDefault();
  content.focus();
});
addEventListener('hashchange', () => show(true));
show(false);

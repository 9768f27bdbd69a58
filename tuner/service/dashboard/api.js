// api - requests to the service. A token is asked for when one is needed, and kept for this tab only.
import { follow } from './stream.js';

const KEY = 'nccltune-token';
let token = sessionStorage.getItem(KEY) ?? '';
let asker = async () => null;
let asking = null;

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// fn(refused) → a token, or null: the person gave up.
export function setAsker(fn) {
  asker = fn;
}

export function forget() {
  token = '';
  sessionStorage.removeItem(KEY);
}

// However many requests were refused, one question.
async function newToken(tried) {
  if (tried !== token) return; // another request has a newer one
  asking ??= asker(tried !== '').finally(() => {
    asking = null;
  });
  const given = await asking;
  if (given === null) throw new ApiError(401, 'unauthorized', 'A token is needed to see this.');
  token = given;
  sessionStorage.setItem(KEY, given);
}

async function fail(answer) {
  let error = {};
  try {
    ({ error } = await answer.json());
  } catch {
    // no JSON: a proxy's page, perhaps
  }
  throw new ApiError(answer.status, error?.code ?? 'unknown', error?.message ?? `the service answered ${answer.status}`);
}

async function send(method, path, { body, headers = {}, signal, quiet = false } = {}) {
  for (;;) {
    const tried = token;
    const all = { ...headers };
    if (tried) all.Authorization = `Bearer ${tried}`;
    if (body !== undefined) all['Content-Type'] = 'application/json';
    let answer;
    try {
      answer = await fetch(path, { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), signal });
    } catch {
      throw new ApiError(0, 'unreachable', 'The service does not answer.');
    }
    if (answer.ok) return answer;
    if (answer.status !== 401 || quiet) await fail(answer);
    await newToken(tried);
  }
}

export const get = async (path) => (await send('GET', path)).json();
export const post = async (path, body) => (await send('POST', path, { body })).json();
export const patch = async (path, body) => (await send('PATCH', path, { body })).json();

const PAGE = 1000;
const PAGES = 20;
// Rows of a documented view as objects.
export async function view(name, job) {
  const rows = [];
  for (let page = 0; page < PAGES; page += 1) {
    const part = await get(`/v1/views/${name}?job=${job}&limit=${PAGE}&offset=${page * PAGE}`);
    rows.push(...part.rows.map((row) => Object.fromEntries(part.columns.map((c, i) => [c, row[i]]))));
    if (part.rows.length < PAGE) break;
  }
  return rows;
}

// Saves an answer as a file of the name that the service gives.
export async function download(path) {
  const answer = await send('GET', path);
  const name = /filename="([^"]+)"/.exec(answer.headers.get('Content-Disposition') ?? '')?.[1] ?? path.split('/').at(-1);
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  return name;
}

// Never asks for a token: that is for who looks at a page.
export const events = (onEvent, onState) =>
  follow((headers, signal) => send('GET', '/v1/events', { headers, signal, quiet: true }), onEvent, onState);

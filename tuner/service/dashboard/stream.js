// stream - server-sent events over fetch: EventSource cannot carry a token. Reconnects by itself, from where it was.

// Text in pieces → events. Pure.
export class EventParser {
  constructor() {
    this.text = '';
  }

  feed(piece) {
    const events = [];
    this.text = (this.text + piece).replaceAll('\r\n', '\n');
    for (let end = this.text.indexOf('\n\n'); end >= 0; end = this.text.indexOf('\n\n')) {
      const event = { id: '', kind: 'message', data: '' };
      for (const line of this.text.slice(0, end).split('\n')) {
        const colon = line.indexOf(':');
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
        if (name === 'id') event.id = value;
        if (name === 'event') event.kind = value;
        if (name === 'data') event.data += (event.data ? '\n' : '') + value;
      }
      this.text = this.text.slice(end + 2);
      if (event.data !== '') events.push(event);
    }
    return events;
  }
}

const SILENT_MS = 45000; // the service says something every 15 s
const WAIT_MS = [1000, 2000, 4000, 8000, 15000];

// open(headers, signal) → Response. onState: 'live', 'again' (live after an interruption), 'lost'.
export async function follow(open, onEvent, onState) {
  let last = '';
  let tries = 0;
  let lost = false;
  for (;;) {
    const stop = new AbortController();
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stop.abort(), SILENT_MS);
    };
    try {
      alive();
      const answer = await open(last ? { 'Last-Event-ID': last } : {}, stop.signal);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      onState(lost ? 'again' : 'live');
      tries = 0;
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        alive();
        for (const event of parser.feed(piece.value)) {
          last = event.id || last;
          onEvent({ kind: event.kind, data: JSON.parse(event.data) });
        }
      }
    } catch {
      stop.abort(); // whatever it was: an answer with an error, a connection that broke, silence
    }
    clearTimeout(watchdog);
    lost = true;
    onState('lost');
    await new Promise((go) => setTimeout(go, WAIT_MS[Math.min(tries, WAIT_MS.length - 1)]));
    tries += 1;
  }
}

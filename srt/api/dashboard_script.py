"""The script of the dashboard: asks for data every two seconds and draws it.

Names that clients have chosen reach the page through `textContent` and attributes only. A page that
nobody looks at asks for nothing. `data-value` beside a shown number is the number itself.
"""

from __future__ import annotations

SCRIPT = """
'use strict';
const EVERY = 2000, KEPT = 150, SPAN = 10, SVG = 'http://www.w3.org/2000/svg';
const $ = id => document.getElementById(id), all = s => document.querySelectorAll(s);
const history = [];
let paused = false, polls = 0, timer = 0;

const short = n => n >= 1e6 ? (n / 1e6).toFixed(2) + 'M' : n >= 1e4 ? (n / 1e3).toFixed(1) + 'k'
  : Number.isInteger(n) ? String(n) : n.toFixed(n < 10 ? 2 : 1);
const percent = x => (100 * x).toFixed(1) + ' %';
const seconds = s => s < 100 ? s.toFixed(1) + ' s' : s < 6000 ? (s / 60).toFixed(0) + ' min'
  : (s / 3600).toFixed(1) + ' h';

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Growth of a counter per second of the server's clock. A server that began anew counts from 0.
function rate(name, at = history.length - 1) {
  const last = history[at];
  let first = at;
  while (first > 0 && last.time - history[first - 1].time <= SPAN) first--;
  if (first === at) return 0;
  const grown = (last.metrics[name] || 0) - (history[first].metrics[name] || 0);
  return Math.max(0, grown) / (last.time - history[first].time);
}

function put(place, value, text) {
  place.dataset.value = value;
  place.textContent = text;
}

function numbers(now) {
  for (const place of all('[data-metric]')) {
    const value = now.metrics[place.dataset.metric];
    if (value === undefined) { put(place, '', '-'); continue; }
    put(place, value, 'percent' in place.dataset ? percent(value) : short(value));
  }
  for (const place of all('[data-rate]')) {
    const value = rate(place.dataset.rate);
    put(place, value, short(value));
  }
  for (const place of all('[data-share]')) {
    const of = rate(place.dataset.of), value = of ? rate(place.dataset.share) / of : NaN;
    put(place, value, of ? percent(value) : '-');
  }
  for (const bar of all('.bar')) {
    const parts = [...bar.children];
    const sizes = parts.map(part => now.metrics[part.dataset.part] || 0);
    const total = sizes.reduce((a, b) => a + b, 0) || 1;
    parts.forEach((part, i) => { part.style.width = 100 * sizes[i] / total + '%'; });
  }
}

function chart(place, label, lines) {
  const most = Math.max(1e-9, ...lines.flatMap(line => line.values));
  place.replaceChildren(...lines.map(({color, values}) => element('polyline', {
    fill: 'none', stroke: color, 'stroke-width': 2, 'vector-effect': 'non-scaling-stroke',
    points: values.map((v, i) =>
      600 - 4 * (values.length - 1 - i) + ',' + (97 - 92 * v / most).toFixed(1)).join(' '),
  })));
  label.textContent = 'top: ' + short(most > 1e-6 ? most : 0);
}

function charts() {
  const line = (color, read) => ({color, values: history.map((_, i) => read(i))});
  const speed = name => i => rate(name, i), gauge = name => i => history[i].metrics[name] || 0;
  chart($('rates'), $('ratemax'), [
    line('var(--a)', speed('treadle:generation_tokens_total')),
    line('var(--b)', speed('treadle:fresh_rows_total')),
    line('var(--exact)', speed('treadle:prefix_hit_tokens_total')),
    line('var(--c)', speed('treadle:replay_rows_total')),
  ]);
  chart($('counts'), $('countmax'), [
    line('var(--a)', gauge('sglang:num_running_reqs')),
    line('var(--b)', gauge('sglang:num_queue_reqs')),
  ]);
}

function color(box) {
  if (box.is_rest) return '#888';
  if (!box.approx) return box.is_prompt ? 'var(--exact)' : 'var(--output)';
  return 'hsl(' + (46 - 4.4 * Math.min(box.approx, 10)) + ' 80% ' + (box.is_prompt ? 50 : 65) +
    '%)';
}

function about(box, start) {
  const what = box.is_rest ? box.nodes + ' small branches' : box.is_prompt ? 'prompt' : 'output';
  return what + ', tokens ' + start + ' to ' + (start + box.tokens) + '\\n' +
    box.total_tokens + ' tokens with all below\\n' +
    (box.approx ? box.approx + ' approximate replays behind it' : 'exact') + '\\n' +
    box.pins + ' readers, used by ' + box.hits + ' requests' +
    (box.unseen ? '\\n' + box.unseen + ' more branches not drawn' : '') +
    (box.scope ? '\\ncache scope ' + box.scope : '');
}

// A box lies right of its parent, as wide as it has tokens, and its children share its height.
function places(boxes) {
  const below = new Map();
  const tops = -1;
  boxes.forEach((box, i) => below.set(box.parent, [...(below.get(box.parent) || []), i]));
  const found = boxes.map(() => null);
  const lay = (parent, start, top, height) => {
    const children = below.get(parent) || [];
    const total = children.reduce((sum, i) => sum + boxes[i].total_tokens, 0) || 1;
    let y = top;
    for (const i of children) {
      const high = height * boxes[i].total_tokens / total;
      found[i] = {start, y, high};
      y += high;
    }
    return children;
  };
  const left = [[tops, 0, 0, 350]];
  while (left.length) {
    for (const i of lay(...left.pop())) {
      left.push([i, found[i].start + boxes[i].tokens, found[i].y, found[i].high]);
    }
  }
  return found;
}

function tree(seen) {
  const boxes = seen.boxes, at = places(boxes), shapes = [];
  const end = Math.max(1, ...boxes.map((box, i) => at[i].start + box.tokens));
  boxes.forEach((box, i) => {
    const x = 1000 * at[i].start / end, width = Math.max(.6, 1000 * box.tokens / end - .4);
    const {y, high} = at[i], height = Math.max(.4, high - .4);
    const shape = element('rect', {x, y, width, height, fill: color(box),
      class: box.pins ? 'pinned' : ''});
    shape.append(element('title', {}, about(box, at[i].start)));
    shapes.push(shape);
    if (width > 70 && height > 13) {
      shapes.push(element('text', {x: x + 4, y: y + 11}, short(box.tokens) + ' tok'));
    }
  });
  $('tree').replaceChildren(...shapes);
  const nodes = seen.seen_nodes < seen.num_nodes
    ? seen.seen_nodes + ' of ' + seen.num_nodes : seen.num_nodes;
  $('treesize').textContent = nodes + ' nodes, ' + short(seen.seen_tokens) + ' of ' +
    short(seen.num_tokens) + ' cached tokens drawn';
}

function table(place, columns, rows) {
  const line = (tag, texts) => {
    const made = document.createElement('tr');
    for (const text of texts) {
      const cell = document.createElement(tag);
      cell.textContent = text;
      if (tag === 'td') cell.title = text;
      made.append(cell);
    }
    return made;
  };
  place.replaceChildren(line('th', columns.map(c => c[0])),
    ...rows.map(row => line('td', columns.map(c => c[1](row)))));
}

const SESSIONS = [
  ['session', s => s.session], ['running', s => s.running], ['waiting', s => s.waiting],
  ['turns', s => s.turns], ['prompt', s => short(s.prompt_tokens)],
  ['hit rate', s => s.prompt_tokens ? percent(s.cached_tokens / s.prompt_tokens) : '-'],
  ['replayed', s => short(s.replayed_tokens)], ['output', s => short(s.output_tokens)],
  ['context', s => short(s.context_tokens)],
  ['kept window', s => s.window_tokens ? 'to ' + short(s.window_tokens) : '-'],
  ['generation', s => s.approx], ['silent', s => seconds(s.silent_s)],
];
const REQUESTS = [
  ['request', r => r.rid], ['session', r => r.session || '-'], ['state', r => r.state],
  ['prompt', r => short(r.prompt_tokens)], ['computed', r => short(r.computed_tokens)],
  ['output', r => short(r.output_tokens)], ['cached', r => short(r.cached_tokens)],
  ['replayed', r => short(r.replayed_tokens)], ['generation', r => r.approx],
  ['age', r => seconds(r.age_s)],
];

function draw(now) {
  history.push({time: now.time, metrics: now.metrics});
  if (history.length > KEPT) history.shift();
  $('version').textContent = now.version;
  $('model').textContent = now.model;
  numbers(now);
  charts();
  tree(now.tree);
  table($('sessions'), SESSIONS, now.sessions);
  table($('requests'), REQUESTS, now.requests);
}

function say(text, isBad) {
  $('state').textContent = text;
  $('state').className = isBad ? 'bad' : '';
}

async function poll() {
  clearTimeout(timer);
  if (!paused && !document.hidden) {
    const key = sessionStorage.getItem('key');
    try {
      const answer = await fetch('dashboard/data',
        {headers: key ? {authorization: 'Bearer ' + key} : {}, cache: 'no-store'});
      $('key').hidden = answer.status !== 401;
      if (answer.ok) {
        const now = await answer.json();
        draw(now);
        say('at ' + new Date(1000 * now.time).toLocaleTimeString());
        document.documentElement.dataset.polls = ++polls;
      } else {
        say(answer.status === 401 ? 'an API key is needed' : 'status ' + answer.status, true);
      }
    } catch (error) {
      say('no answer: ' + error.message, true);
    }
  }
  timer = setTimeout(poll, EVERY);
}

$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').textContent = paused ? 'go on' : 'pause';
  if (paused) say('paused'); else poll();
});
$('key').addEventListener('submit', event => {
  event.preventDefault();
  sessionStorage.setItem('key', $('key').querySelector('input').value);
  poll();
});
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
poll();
"""

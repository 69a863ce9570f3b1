// Memory over time: the categories of live memory, stacked, with a line for reserved memory, phases and limits.

const LEFT = 74;
const RIGHT = 14;
const STRIP = 19;
const TOP = STRIP * 2 + 8;
const BOTTOM = 26;
const LEAST_SPAN = 4;

// The distance between two ticks of an axis with this range and about this many ticks.
function tickStep(range, ticks, binary) {
  const rough = Math.max(range / ticks, 1);
  if (binary) return 2 ** Math.ceil(Math.log2(rough));
  const ten = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * ten).find((tick) => tick >= rough);
}

function hatch(context, color) {
  const tile = document.createElement('canvas');
  tile.width = 8;
  tile.height = 8;
  const draw = tile.getContext('2d');
  draw.strokeStyle = color;
  draw.lineWidth = 1.2;
  draw.beginPath();
  for (const offset of [-8, 0, 8]) {
    draw.moveTo(offset, 8);
    draw.lineTo(offset + 8, 0);
  }
  draw.stroke();
  return context.createPattern(tile, 'repeat');
}

// The limits of a model as heights in the timeline. A process limit is lowered by context and modules, because the
// timeline does not draw them.
function limitLines(model) {
  const outside = model.peak.process - model.peak.reserved;
  return model.limits.map((limit) => ({
    ...limit,
    height: limit.metric === 'process' ? limit.bytes - outside : limit.bytes,
    over: { live: model.peak.live, reserved: Math.max(model.peak.reserved, model.run.peaks.warm.reserved ?? 0), process: Math.max(model.peak.process, model.run.peaks.warm.process ?? 0) }[limit.metric] > limit.bytes,
  }));
}

function highestOf(model) {
  let most = Math.max(model.peak.live, 1);
  for (const reserved of model.line.reserved) most = Math.max(most, reserved);
  for (const limit of limitLines(model)) if (limit.height < most * 1.6) most = Math.max(most, limit.height);
  return most;
}

// `extent` is the number of samples on the axis: more than the model has if a longer model stands beside it. `onview`
// gets the shown range.
function timeline(model, { highest, onselect, extent = model.line.samples, onview = () => {} }) {
  const { line } = model;
  const peak = line.indexOf(model.peak.sample);
  const limits = limitLines(model);
  const state = { from: 0, to: extent, chosen: peak, hover: null, drag: null, tensor: null, fit: false, dim: null };
  const canvas = el('canvas', { class: 'chart', tabindex: '0', role: 'slider', 'aria-label': 'moment on the timeline', 'aria-valuemin': 0, 'aria-valuemax': line.samples - 1, 'aria-orientation': 'horizontal' });
  const overview = el('canvas', { class: 'overview', 'aria-hidden': 'true' });
  const tip = el('div', { class: 'tip', hidden: true });
  const said = el('p', { class: 'range', role: 'status' });
  const front = canvas.getContext('2d');
  // A second canvas that keeps everything that does not follow the pointer.
  const still = document.createElement('canvas');
  const back = still.getContext('2d');
  let fresh = false;
  let scale = null;
  let context = back;
  const small = overview.getContext('2d');
  let width = 0;
  let height = 0;
  let segments = [];

  const plot = () => ({ x: LEFT, y: TOP, w: Math.max(width - LEFT - RIGHT, 1), h: Math.max(height - TOP - BOTTOM, 1) });
  const xOf = (sample) => LEFT + ((sample - state.from) / (state.to - state.from)) * plot().w;
  const sampleOf = (x) => state.from + ((x - LEFT) / plot().w) * (state.to - state.from);

  // The moments to draw from `from` to `to` in this many pixels: all of them if there is room. Otherwise the one with
  // the most live memory per pixel, so that the chart shows only real moments.
  function pick(from, to, pixels) {
    if (from >= line.samples) return [];
    const first = line.indexOf(Math.floor(from));
    const last = line.indexOf(Math.ceil(to) - 1);
    const scale = pixels / (to - from);
    const picked = [];
    if (last - first + 1 <= pixels) {
      for (let at = first; at <= last; at += 1) {
        const start = Math.max(line.sampleAt(at), from);
        const end = at + 1 < line.count ? line.sampleAt(at + 1) : line.samples;
        picked.push({ x0: (start - from) * scale, x1: (Math.min(end, to) - from) * scale, at, reserved: line.reserved[at] });
      }
      return picked;
    }
    let current = null;
    for (let at = first; at <= last; at += 1) {
      const pixel = Math.max(0, Math.floor((line.sampleAt(at) - from) * scale));
      if (!current || current.pixel !== pixel) {
        if (current) current.x1 = pixel;
        current = { pixel, x0: pixel, x1: pixel + 1, at, reserved: line.reserved[at] };
        picked.push(current);
      } else {
        if (line.live[at] > line.live[current.at]) current.at = at;
        current.reserved = Math.max(current.reserved, line.reserved[at]);
      }
    }
    return picked;
  }

  function stacked(target, picked, x, yOf) {
    let lower = new Float64Array(picked.length);
    STACK.forEach((category, number) => {
      const series = line.series[number];
      const upper = lower.slice();
      let any = false;
      picked.forEach((segment, at) => {
        upper[at] += series[segment.at];
        any ||= series[segment.at] > 0;
      });
      if (any) {
        target.globalAlpha = state.dim && state.dim !== category.key ? 0.18 : 1;
        target.fillStyle = category.color;
        target.beginPath();
        picked.forEach((segment, at) => {
          target.lineTo(x + segment.x0, yOf(upper[at]));
          target.lineTo(x + segment.x1, yOf(upper[at]));
        });
        for (let at = picked.length - 1; at >= 0; at -= 1) {
          target.lineTo(x + picked[at].x1, yOf(lower[at]));
          target.lineTo(x + picked[at].x0, yOf(lower[at]));
        }
        target.fill();
        target.globalAlpha = 1;
      }
      lower = upper;
    });
    return lower;
  }

  function steps(target, picked, x, height) {
    target.beginPath();
    picked.forEach((segment, at) => {
      target.lineTo(x + segment.x0, height(segment, at));
      target.lineTo(x + segment.x1, height(segment, at));
    });
  }

  function label(text, x, y, { align = 'left', color = ink('text'), back = null, bold = false } = {}) {
    context.font = `${bold ? '600 ' : ''}11.5px system-ui, sans-serif`;
    context.textAlign = align;
    context.textBaseline = 'middle';
    if (back) {
      const wide = context.measureText(text).width;
      const left = align === 'right' ? x - wide : align === 'center' ? x - wide / 2 : x;
      context.fillStyle = back;
      context.globalAlpha = 0.94;
      context.fillRect(left - 4, y - 8, wide + 8, 16);
      context.globalAlpha = 1;
    }
    context.fillStyle = color;
    context.fillText(text, x, y);
  }

  function strips() {
    const { x, w } = plot();
    const bounds = (from, to) => [Math.max(x, xOf(from)), Math.min(x + w, xOf(to))];
    const band = (from, to, y, color, alpha, text, back) => {
      const [left, right] = bounds(from, to);
      if (right - left <= 0.2) return;
      context.globalAlpha = alpha;
      context.fillStyle = color;
      context.fillRect(left, y, Math.max(right - left - (right - left > 3 ? 1 : 0), 0.5), STRIP - 3);
      context.globalAlpha = 1;
      context.font = '11.5px system-ui, sans-serif';
      if (context.measureText(text).width + 8 < right - left) label(text, (left + right) / 2, y + STRIP / 2 - 1, { align: 'center', color: back });
    };
    let start = 0;
    const seen = line.spans.filter((span) => span.to > state.from && span.from < state.to).length;
    // There are too many phases to draw each one.
    const crowded = seen > w / 5;
    if (crowded) label(`${plural(new Set(line.spans.map((span) => span.step)).size, 'step')}: zoom in to see phases`, x + w / 2, STRIP + 2 + STRIP / 2, { align: 'center', color: ink('muted') });
    line.spans.forEach((span, at) => {
      const { y, h } = plot();
      const [left, right] = bounds(span.from, span.to);
      if (right > left && !crowded) {
        context.globalAlpha = 0.1;
        context.fillStyle = span.phase.color;
        context.fillRect(left, y, right - left, h);
        context.globalAlpha = 1;
      }
      if (!crowded) band(span.from, span.to, STRIP + 2, span.phase.color, 0.34, span.phase.label, ink('text'));
      const next = line.spans[at + 1];
      if (!next || next.step !== span.step) {
        const [left, right] = bounds(line.spans[start].from, span.to);
        const text = span.step === null ? 'before' : right - left > 54 ? `step ${span.step}` : String(span.step);
        band(line.spans[start].from, span.to, 1, ink('band'), 1, text, ink('text'));
        start = at + 1;
      }
    });
  }

  function axes(top) {
    const { x, y, w, h } = plot();
    context.lineWidth = 1;
    const step = tickStep(top, Math.max(h / 48, 2), true);
    for (let bytes = 0; bytes <= top; bytes += step) {
      const at = Math.round(y + h - (bytes / top) * h) + 0.5;
      context.strokeStyle = ink('grid');
      context.beginPath();
      context.moveTo(x, at);
      context.lineTo(x + w, at);
      context.stroke();
      label(bytes === 0 ? '0' : size(bytes), x - 8, at, { align: 'right', color: ink('muted') });
    }
    const every = tickStep(state.to - state.from, Math.max(w / 110, 2), false);
    for (let sample = Math.ceil(state.from / every) * every; sample < state.to; sample += every) {
      label(count(sample), xOf(sample), y + h + 13, { align: 'center', color: ink('muted') });
    }
  }

  function drawStill(ratio) {
    context = back;
    still.width = canvas.width;
    still.height = canvas.height;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { x, y, w, h } = plot();
    strips();
    segments = pick(state.from, state.to, Math.max(1, Math.floor(w * ratio)));
    const narrow = segments.length && segments[0].pixel !== undefined;
    // If each pixel has one segment, segments are in device pixels.
    const drawn = narrow ? segments : pick(state.from, state.to, w);
    const shrink = narrow ? 1 / ratio : 1;
    const scaled = drawn.map((segment) => ({ ...segment, x0: segment.x0 * shrink, x1: segment.x1 * shrink }));
    segments = scaled;
    let top = highest();
    if (state.fit) {
      top = 1;
      for (const segment of scaled) top = Math.max(top, segment.reserved);
    }
    top *= 1.06;
    const yOf = (bytes) => y + h - (bytes / top) * h;
    scale = yOf;
    axes(top);
    const end = xOf(line.samples);
    if (end < x + w - 1) {
      // This model ended here; the longer one beside it goes on.
      context.fillStyle = ink('soft');
      context.fillRect(Math.max(end, x), y, x + w - Math.max(end, x), h);
    }
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    const live = stacked(context, scaled, x, yOf);
    // Fragmentation, between live and reserved.
    steps(context, scaled, x, (segment) => yOf(segment.reserved));
    for (let at = scaled.length - 1; at >= 0; at -= 1) {
      context.lineTo(x + scaled[at].x1, yOf(live[at]));
      context.lineTo(x + scaled[at].x0, yOf(live[at]));
    }
    context.fillStyle = hatch(context, ink('hatch'));
    context.fill();
    context.strokeStyle = ink('text');
    context.lineJoin = 'round';
    context.lineWidth = 1.6;
    steps(context, scaled, x, (segment) => yOf(segment.reserved));
    context.stroke();
    if (state.tensor) {
      const [from, to] = [Math.max(x, xOf(state.tensor.born)), Math.min(x + w, xOf(Math.min(state.tensor.died, line.samples)))];
      context.fillStyle = ink('accent');
      context.globalAlpha = 0.16;
      context.fillRect(from, y, Math.max(to - from, 2), h);
      context.globalAlpha = 1;
      context.fillRect(from, y + h - 5, Math.max(to - from, 2), 5);
    }
    context.restore();
    for (const limit of limits) {
      const at = yOf(limit.height);
      const text = `${limit.metric} limit ${size(limit.bytes)} · ${limit.label}`;
      const color = ink(limit.over ? 'bad' : 'good');
      if (at < y) {
        label(`↑ ${text}`, x + 8, y + 12, { color, back: ink('paper') });
        continue;
      }
      context.strokeStyle = color;
      context.setLineDash([7, 4]);
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(x, at);
      context.lineTo(x + w, at);
      context.stroke();
      context.setLineDash([]);
      label(text + (limit.over ? ' · exceeded' : ''), x + 8, Math.max(at - 10, y + 8), { color, back: ink('paper') });
    }
  }

  function draw() {
    if (width === 0) return;
    const ratio = canvas.width / width;
    if (!fresh) drawStill(ratio);
    fresh = true;
    context = front;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(still, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { x, y, w, h } = plot();
    const yOf = scale;
    // The selected moment, the moment under the pointer, and the peak.
    const cursor = (index, color, dash) => {
      const at = xOf(line.sampleAt(index) + 0.5);
      if (at < x || at > x + w) return;
      context.strokeStyle = color;
      context.lineWidth = dash ? 1 : 2;
      context.setLineDash(dash ? [3, 3] : []);
      context.beginPath();
      context.moveTo(at, y - 4);
      context.lineTo(at, y + h);
      context.stroke();
      context.setLineDash([]);
      if (!dash) {
        context.fillStyle = color;
        context.beginPath();
        context.arc(at, y + h, 4.5, 0, 7);
        context.fill();
      }
    };
    cursor(state.chosen, ink('accent'), false);
    if (state.hover !== null) cursor(state.hover, ink('text'), true);
    const peakX = xOf(model.peak.sample + 0.5);
    if (peakX >= x && peakX <= x + w) {
      const peakY = Math.max(yOf(model.peak.live), y + 4);
      context.fillStyle = ink('text');
      context.beginPath();
      context.moveTo(peakX, peakY - 2);
      context.lineTo(peakX - 5, peakY - 10);
      context.lineTo(peakX + 5, peakY - 10);
      context.fill();
      const text = `peak ${size(model.peak.live)}`;
      label(text, Math.min(Math.max(peakX, x + 60), x + w - 60), Math.max(peakY - 20, y + 9), { align: 'center', back: ink('paper'), bold: true });
    }
    if (state.drag && state.drag.moved && !state.drag.pan) {
      const [from, to] = [state.drag.start, state.drag.now].sort((a, b) => a - b);
      context.fillStyle = ink('accent');
      context.globalAlpha = 0.2;
      context.fillRect(from, y, to - from, h);
      context.globalAlpha = 1;
    }
    drawOverview();
  }

  // A small chart of the whole run that marks the shown range. Its content is drawn once and kept in `aside`.
  let aside = null;
  function drawOverview() {
    // The overview is hidden in print.
    if (overview.height === 0) return;
    const ratio = overview.width / width;
    const tall = overview.height / ratio;
    const w = plot().w;
    if (aside === null) {
      aside = document.createElement('canvas');
      aside.width = overview.width;
      aside.height = overview.height;
      const target = aside.getContext('2d');
      target.scale(ratio, ratio);
      const { dim } = state;
      state.dim = null;
      stacked(target, pick(0, extent, Math.max(1, Math.floor(w))), LEFT, (bytes) => tall - (bytes / highest()) * (tall - 2));
      state.dim = dim;
    }
    small.setTransform(1, 0, 0, 1, 0, 0);
    small.clearRect(0, 0, overview.width, overview.height);
    small.drawImage(aside, 0, 0);
    small.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [from, to] = [state.from, state.to].map((sample) => LEFT + (sample / extent) * w);
    small.fillStyle = ink('veil');
    small.fillRect(LEFT, 0, from - LEFT, tall);
    small.fillRect(to, 0, LEFT + w - to, tall);
    small.strokeStyle = ink('accent');
    small.lineWidth = 2;
    small.strokeRect(from + 1, 1, Math.max(to - from - 2, 2), tall - 2);
  }

  // Redraws what follows the pointer, or everything if `all` is true.
  let asked = false;
  function redraw(all = true) {
    if (all) fresh = false;
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  }

  function resize() {
    const box = canvas.getBoundingClientRect();
    if (box.width === 0) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    [width, height] = [box.width, box.height];
    for (const [each, tall] of [[canvas, height], [overview, overview.getBoundingClientRect().height]]) {
      each.width = Math.round(width * ratio);
      each.height = Math.round(tall * ratio);
    }
    aside = null;
    fresh = false;
    draw();
  }

  function view(from, to, tell = true) {
    const span = Math.min(Math.max(to - from, Math.min(LEAST_SPAN, extent)), extent);
    state.from = Math.min(Math.max(from, 0), extent - span);
    state.to = state.from + span;
    const whole = span >= extent;
    said.textContent = whole ? `all ${plural(line.samples, 'sample')}` : `samples ${count(Math.floor(state.from))} to ${count(Math.min(Math.ceil(state.to), Math.max(line.samples, Math.ceil(state.from) + 1)) - 1)} of ${count(line.samples)}`;
    redraw();
    if (tell) onview(state.from, state.to);
  }
  function zoom(factor, around = (state.from + state.to) / 2) {
    view(around - (around - state.from) * factor, around + (state.to - around) * factor);
  }
  const pan = (samples) => view(state.from + samples, state.from + samples + (state.to - state.from));

  function choose(index, follow = true) {
    if (line.count === 0) return;
    state.chosen = Math.min(Math.max(index, 0), line.count - 1);
    const sample = line.sampleAt(state.chosen);
    if (follow && (sample < state.from || sample >= state.to)) {
      const span = state.to - state.from;
      view(sample - span / 2, sample + span / 2);
    }
    const span = line.span(sample);
    canvas.setAttribute('aria-valuenow', sample);
    canvas.setAttribute('aria-valuetext', `sample ${sample}, ${span ? where(span.step, span.phase) : 'before the first phase'}, live ${size(line.live[state.chosen])}, reserved ${size(line.reserved[state.chosen])}`);
    redraw();
    onselect(state.chosen);
  }

  function segmentAt(x) {
    const at = firstIndex(segments.length, (index) => LEFT + segments[index].x1 > x);
    return segments[Math.min(at, segments.length - 1)] ?? null;
  }

  function tensorLine(sign, tensor) {
    return el('div', { class: 'event' }, el('b', {}, sign), ' ', dot(tensor.category), `${size(tensor.bytes)} `, el('span', { class: 'muted' }, `${tensor.shape} ${tensor.dtype} · ${tensor.module ?? tensor.operation}`));
  }
  function events(sign, tensors) {
    const held = tensors.filter((tensor) => tensor.bytes > 0);
    const rest = held.length - 4;
    return [held.slice(0, 4).map((tensor) => tensorLine(sign, tensor)), rest > 0 ? el('div', { class: 'event muted' }, `${sign} ${plural(rest, 'more tensor')}`) : null];
  }

  function showTip(x, y) {
    const index = state.hover;
    if (index === null) {
      tip.hidden = true;
      return;
    }
    const sample = line.sampleAt(index);
    const span = line.span(sample);
    const rows = STACK.map((category, number) => [category, line.series[number][index]]).filter(([, bytes]) => bytes > 0).reverse();
    const made = madeBy(line.madeLast(index), model.texts);
    put(tip,
      el('div', { class: 'tiphead' }, el('b', {}, span ? where(span.step, span.phase) : 'before'), el('span', { class: 'muted' }, ` sample ${count(sample)}`)),
      made.length ? el('div', { class: 'made' }, made) : null,
      el('code', { class: 'kernel' }, line.kernels[line.kernel[index]] ?? ''),
      el('div', { class: 'tipsum' }, el('span', {}, 'reserved'), el('b', {}, size(line.reserved[index]))),
      el('div', { class: 'tipsum' }, el('span', {}, 'live'), el('b', {}, size(line.live[index]))),
      rows.map(([category, bytes]) => el('div', { class: 'tiprow' }, named(category), el('span', {}, size(bytes)))),
      events('+', line.came(index)),
      events('−', line.went(index)),
    );
    tip.hidden = false;
    const wide = tip.offsetWidth;
    const tall = tip.offsetHeight;
    const right = x + 18 + wide < width;
    tip.style.left = `${right ? x + 18 : Math.max(x - wide - 18, 0)}px`;
    tip.style.top = `${Math.max(Math.min(y - 20, height - tall + 60), 0)}px`;
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const inside = (x) => Math.min(Math.max(x, LEFT), width - RIGHT);
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    const [x] = place(event);
    state.drag = { start: inside(x), now: inside(x), moved: false, pan: event.shiftKey, from: state.from, to: state.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = place(event);
    if (state.drag) {
      state.drag.now = inside(x);
      state.drag.moved ||= Math.abs(state.drag.now - state.drag.start) > 4;
      if (state.drag.pan) {
        const samples = ((state.drag.start - state.drag.now) / plot().w) * (state.drag.to - state.drag.from);
        view(state.drag.from + samples, state.drag.to + samples);
      }
    }
    const segment = x >= LEFT && x <= width - RIGHT ? segmentAt(x) : null;
    state.hover = segment && !(state.drag && state.drag.moved) ? segment.at : null;
    showTip(x, y);
    redraw(false);
  });
  canvas.addEventListener('pointerup', (event) => {
    const { drag } = state;
    state.drag = null;
    if (!drag) return;
    if (!drag.moved) {
      const segment = segmentAt(place(event)[0]);
      if (segment) choose(segment.at);
    } else if (!drag.pan) {
      const [from, to] = [drag.start, drag.now].sort((a, b) => a - b).map(sampleOf);
      view(from, to);
    }
    redraw();
  });
  const leave = () => {
    state.hover = null;
    tip.hidden = true;
    redraw(false);
  };
  canvas.addEventListener('pointerleave', leave);
  canvas.addEventListener('pointercancel', () => {
    state.drag = null;
    leave();
  });
  canvas.addEventListener('dblclick', () => view(0, extent));
  // The wheel scrolls the page unless the chart has focus.
  canvas.addEventListener('wheel', (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) pan((sideways / plot().w) * (state.to - state.from));
    else zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0022), sampleOf(inside(place(event)[0])));
  }, { passive: false });
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? Math.max(1, Math.round((state.to - state.from) / 20)) : 1;
    const keys = {
      ArrowLeft: () => choose(state.chosen - far),
      ArrowRight: () => choose(state.chosen + far),
      ArrowUp: () => zoom(0.6, line.sampleAt(state.chosen)),
      ArrowDown: () => zoom(1 / 0.6, line.sampleAt(state.chosen)),
      PageUp: () => pan(-(state.to - state.from) / 2),
      PageDown: () => pan((state.to - state.from) / 2),
      Home: () => choose(0),
      End: () => choose(line.count - 1),
      p: () => choose(peak),
      '+': () => zoom(0.6, line.sampleAt(state.chosen)),
      '=': () => zoom(0.6, line.sampleAt(state.chosen)),
      '-': () => zoom(1 / 0.6, line.sampleAt(state.chosen)),
      0: () => view(0, extent),
      Escape: () => canvas.blur(),
    };
    const act = keys[event.key];
    if (!act || line.count === 0) return;
    event.preventDefault();
    act();
  });
  const moveWindow = (event) => {
    if (event.buttons === 0) return;
    const box = overview.getBoundingClientRect();
    const sample = ((event.clientX - box.left - LEFT) / plot().w) * extent;
    const span = state.to - state.from;
    if (span < extent) view(sample - span / 2, sample + span / 2);
  };
  overview.addEventListener('pointerdown', (event) => {
    overview.setPointerCapture(event.pointerId);
    moveWindow(event);
  });
  overview.addEventListener('pointermove', moveWindow);

  const button = (text, label, act) => el('button', { type: 'button', 'aria-label': label, title: label, onclick: act }, text);
  const fit = button('fit height', 'fit the height to the shown range', () => {
    state.fit = !state.fit;
    fit.setAttribute('aria-pressed', String(state.fit));
    redraw();
  });
  fit.setAttribute('aria-pressed', 'false');
  const steps1 = [...new Set(line.spans.map((span) => span.step))].filter((step) => step !== null);
  const lastStep = steps1.length > 1 ? steps1[steps1.length - 1] : null;
  const toStep = (step) => {
    const own = line.spans.filter((span) => span.step === step);
    view(own[0].from, own[own.length - 1].to);
  };
  const used = STACK.filter((_, number) => line.series[number].some((bytes) => bytes > 0));
  const legend = el('div', { class: 'legend' },
    used.map((category) => el('button', {
      type: 'button',
      title: category.meaning,
      'aria-label': `show only ${category.label}`,
      'aria-pressed': 'false',
      onclick: (event) => {
        state.dim = state.dim === category.key ? null : category.key;
        for (const each of legend.querySelectorAll('button')) each.setAttribute('aria-pressed', String(each === event.currentTarget && state.dim !== null));
        redraw();
      },
    }, dot(category), category.label)),
    el('span', {}, el('i', { class: 'hatched' }), 'fragmentation'),
    el('span', {}, el('i', { class: 'stroke' }), 'reserved'),
  );
  if (line.count === 0) {
    return { root: el('p', {}, 'No launch was observed, so there is nothing to draw.'), peak: 0, choose() {}, view() {}, highlight() {}, repaint() {} };
  }
  const root = el('div', { class: 'timeline' },
    el('div', { class: 'tools' },
      button('−', 'zoom out', () => zoom(1 / 0.6)),
      button('+', 'zoom in', () => zoom(0.6, line.count ? line.sampleAt(state.chosen) : 0)),
      button('all', 'show all', () => view(0, extent)),
      lastStep !== null ? button('last step', 'show the last step', () => toStep(lastStep)) : null,
      button('peak', 'select the peak', () => choose(peak)),
      fit,
      said,
    ),
    el('div', { class: 'chartbox' }, canvas, tip),
    overview,
    legend,
    el('p', { class: 'note keys' }, 'Point at the chart to see a moment; click to select it. Drag to zoom; drag with Shift to move. After a click, scroll to zoom. Double-click to show all. Keys: ← → previous or next moment, ↑ ↓ zoom, P peak, 0 show all.'),
  );
  new ResizeObserver(resize).observe(canvas);
  view(0, extent, false);
  return {
    root,
    peak,
    choose,
    view,
    highlight(tensor) {
      state.tensor = tensor;
      redraw();
    },
    // Redraws in the current colours. It draws at once, because printing does not wait for the next frame.
    repaint() {
      aside = null;
      fresh = false;
      draw();
    },
  };
}

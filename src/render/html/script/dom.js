// Elements, sizes and tables. Text is always inserted as text, never as HTML.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  // `append` inserts a child as text unless it is an element.
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const put = (element, ...children) => {
  element.replaceChildren();
  return fill(element, {}, children);
};
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const UNITS = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];

// A size with at most two decimals: `512 B`, `16 MiB`, `5.88 GiB`.
function size(bytes) {
  const magnitude = Math.abs(bytes);
  const sign = bytes < 0 ? '−' : '';
  const unit = UNITS.find(([least]) => magnitude >= least);
  if (!unit) return `${sign}${magnitude} B`;
  const text = (Math.round((magnitude * 100) / unit[0]) / 100).toFixed(2);
  return `${sign}${text.endsWith('.00') ? text.slice(0, -3) : text} ${unit[1]}`;
}

const count = (number) => number.toLocaleString('en-US');
const exact = (bytes) => `${count(bytes).replace('-', '−')} B`;
const change = (bytes) => (bytes > 0 ? `+${size(bytes)}` : size(bytes));
function percent(part, whole) {
  if (part === 0) return '0 %';
  if (!(whole > 0)) return '–';
  const hundredths = (part * 100) / whole;
  return hundredths < 0.05 ? '<0.1 %' : `${hundredths.toFixed(hundredths < 9.95 ? 1 : 0)} %`;
}
// Measures the width of a text in a font of the page.
const measure = document.createElement('canvas').getContext('2d');
function textWidth(text, font) {
  measure.font = `${font} system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif`;
  return measure.measureText(text).width;
}

const plural = (number, what) => `${count(number)} ${what}${number === 1 ? '' : 's'}`;

// A size with the exact bytes as its tooltip.
const amount = (bytes, show = size) =>
  bytes === null || bytes === undefined ? el('span', { class: 'none' }, '–') : el('span', { title: exact(bytes) }, show(bytes));

const dot = (swatch) => el('span', { class: 'dot', style: { background: swatch.color }, 'aria-hidden': 'true' });
const named = (swatch) => el('span', { class: 'named', title: `${swatch.label}: ${swatch.meaning}` }, dot(swatch), el('span', { class: 'label' }, swatch.label));
const where = (step, phase) => (step === null || step === undefined ? phase.label : `step ${step} · ${phase.label}`);

// A name in a table, cut to the available width, with the whole name as its tooltip. A path keeps its end, other names
// keep their beginning.
const shortened = (look) => (text, ...more) => (text === null ? el('span', { class: 'none' }, '–') : el('span', { class: look, title: text }, el('bdi', { dir: 'ltr' }, text, more)));
const cut = shortened('cut');
const cutPath = shortened('cut path');
const inferred = (row) => (row.inferred ? el('span', { class: 'muted', title: 'inferred from its neighbours' }, ' ~') : null);

// The last part of a path. The folders are in the element, too, without width: a click selects and copies the whole
// path.
function sourceOf(source) {
  if (!source) return el('span', { class: 'none' }, '–');
  const [place, name] = typeof source === 'string' ? source.split('\n') : [`${source.file}:${source.line}`, source.function];
  const last = place.lastIndexOf('/') + 1;
  return el('code', { class: 'source', title: `${place}\n${name}` }, el('span', { class: 'folder' }, place.slice(0, last)), place.slice(last));
}

// The layer and the source line of a moment, from `line.madeLast`. Readers know these, so they come before the kernel.
function madeBy(made, texts) {
  if (!made) return [];
  const { tensor, now } = made;
  const text = tensor.source ? texts.get(tensor.source.split('\n')[0]) : null;
  return [
    el('span', { class: 'layer', title: now ? null : 'this launch made no tensor of a layer; the layer of the last tensor before it is shown' }, now ? null : el('span', { class: 'muted' }, 'after '), tensor.module ?? tensor.operation),
    tensor.source ? [' · ', sourceOf(tensor.source)] : null,
    text ? [' ', el('code', { class: 'muted says' }, text)] : null,
  ].filter(Boolean);
}

// A table in a box that may be narrower than the table. If it is, the box says so and shades each side that hides
// columns.
function scrolling(caption, table, kind = '') {
  const box = el('div', { class: `scroll ${kind}`, tabindex: '0', role: 'region', 'aria-label': caption }, table);
  const root = el('div', { class: 'scrollbox' }, el('p', { class: 'note sideways', 'aria-hidden': 'true' }, 'Scroll sideways for more columns →'), el('div', { class: 'shaded' }, box));
  const look = () => {
    const hidden = box.scrollWidth - box.clientWidth;
    root.classList.toggle('wide', hidden > 1);
    root.classList.toggle('left', hidden > 1 && box.scrollLeft > 1);
    root.classList.toggle('right', hidden > 1 && box.scrollLeft < hidden - 1);
  };
  box.addEventListener('scroll', look, { passive: true });
  const watch = new ResizeObserver(() => requestAnimationFrame(look));
  watch.observe(box);
  watch.observe(table);
  return root;
}

function section(title, note, ...children) {
  return el('section', { class: 'panel' }, el('header', {}, el('h2', {}, title), note ? el('p', { class: 'note' }, note) : null), children);
}

// A colour of the style sheet, resolved for a canvas.
const probe = el('span', { class: 'probe', 'aria-hidden': 'true' });
function ink(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// The CSS classes of a column's cells.
const cellClass = (column) => [column.number && 'number', column.class].filter(Boolean).join(' ') || null;

// A table that can be sorted by each column. A column has: label, value (sort key), cell (content), number (sorts
// descending first), class, under (content below the label). `step` is the number of rows shown at first.
function sortable({ caption, columns, rows, sort = null, step = 100, onpoint = null, foot = null, filterBy = null, hint = 'module, shape, operation …' }) {
  const state = { column: sort ? sort[0] : -1, down: sort ? sort[1] : false, shown: step, text: '' };
  const head = el('tr');
  const body = el('tbody');
  const footer = el('tfoot');
  const more = el('button', { type: 'button', class: 'more' });
  const found = el('span', { class: 'found', role: 'status' });
  const root = el('div', { class: 'tablebox' });
  let all = rows;
  const buttons = columns.map((shown, at) => {
    const button = el('button', { type: 'button', title: shown.title ?? shown.label }, el('span', { class: 'label' }, shown.label), el('span', { class: 'arrow', 'aria-hidden': 'true' }));
    button.addEventListener('click', () => {
      if (state.column === at) state.down = !state.down;
      else Object.assign(state, { column: at, down: Boolean(shown.number) });
      state.shown = step;
      draw();
    });
    head.append(el('th', { scope: 'col', class: cellClass(shown) }, button, shown.under ?? null));
    return button;
  });
  function draw() {
    const wanted = state.text.toLowerCase();
    const kept = wanted ? all.filter((row) => filterBy(row).toLowerCase().includes(wanted)) : all.slice();
    if (state.column >= 0) {
      const { value } = columns[state.column];
      const direction = state.down ? -1 : 1;
      const compare = (a, b) => (typeof a === 'string' && typeof b === 'string' ? a.localeCompare(b, 'en', { numeric: true }) : a - b);
      kept.sort((a, b) => {
        const [left, right] = [value(a), value(b)];
        // Unknown values go last in both directions.
        if (left === null || right === null) return (left === null) - (right === null);
        return direction * compare(left, right);
      });
    }
    buttons.forEach((button, at) => {
      const order = at === state.column ? (state.down ? 'descending' : 'ascending') : 'none';
      button.parentElement.setAttribute('aria-sort', order);
    });
    body.replaceChildren(
      ...kept.slice(0, state.shown).map((row) => {
        const line = el('tr', {}, columns.map((shown) => el('td', { class: cellClass(shown) }, shown.cell(row))));
        if (onpoint) {
          line.addEventListener('pointerenter', () => onpoint(row));
          line.addEventListener('pointerleave', () => onpoint(null));
        }
        return line;
      }),
    );
    if (foot) footer.replaceChildren(el('tr', {}, foot(kept)));
    const rest = kept.length - state.shown;
    more.hidden = rest <= 0;
    more.textContent = `show ${count(Math.min(rest, step * 5))} more of ${count(kept.length)}`;
    found.textContent = wanted ? `${count(kept.length)} of ${count(all.length)}` : '';
  }
  more.addEventListener('click', () => {
    state.shown += step * 5;
    draw();
  });
  const filter = filterBy
    ? el('label', { class: 'filter' }, el('span', {}, 'filter'), el('input', {
      type: 'search',
      placeholder: hint,
      'aria-label': `filter ${caption}`,
      oninput: (event) => {
        state.text = event.target.value.trim();
        state.shown = step;
        draw();
      },
    }), found)
    : null;
  root.append(
    ...[filter].filter(Boolean),
    scrolling(caption, el('table', {}, el('caption', {}, caption), el('thead', {}, head), body, footer)),
    more,
  );
  draw();
  return {
    root,
    show(next) {
      all = next;
      state.shown = step;
      draw();
    },
  };
}

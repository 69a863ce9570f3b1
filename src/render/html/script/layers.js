// The layer table: a tree of modules that can be folded, sorted and filtered, with sums.

const LAYER_COLUMNS = [
  { label: 'layer', value: (node) => node.name },
  { label: 'kind', value: (node) => node.row?.kind ?? '' },
  { label: 'output', value: (node) => (node.row ? node.row.output.reduce((all, size) => all * size, 1) : node.features), number: true, class: 'shape' },
  { label: 'dtype', value: (node) => node.row?.dtype ?? '', class: 'minor' },
  { label: 'parameters', value: (node) => node.parameters, number: true, class: 'minor' },
  { label: 'parameter bytes', value: (node) => node.bytes, number: true },
  { label: 'feature map', value: (node) => node.features, number: true },
  { label: 'source', value: (node) => (node.row?.source ? `${node.row.source.file}:${String(node.row.source.line).padStart(7, '0')}` : '') },
];

// Builds the tree of modules. Modules are in the order of their first row.
function layerTree(layers) {
  const make = (name, path, depth) => ({ name, path, depth, row: null, parts: [], named: new Map(), parameters: 0, bytes: 0, features: 0, rows: 0, open: true });
  const root = make('', '', 0);
  for (const row of layers) {
    const names = row.path.split('.').slice(0, 12);
    const trail = [root];
    let node = root;
    for (const name of names.slice(0, -1)) {
      if (!node.named.has(name)) {
        const part = make(name, node.path ? `${node.path}.${name}` : name, node.depth + 1);
        node.named.set(name, part);
        node.parts.push(part);
      }
      node = node.named.get(name);
      trail.push(node);
    }
    const leaf = make(names[names.length - 1], row.path, node.depth + 1);
    leaf.row = row;
    node.parts.push(leaf);
    for (const each of [...trail, leaf]) {
      each.parameters += row.parameters;
      each.bytes += row.parameter_bytes;
      each.features += row.feature_bytes;
      each.rows += 1;
    }
  }
  return root;
}

function layerPanel(model, changed) {
  if (model.layers.length === 0) return null;
  const tree = layerTree(model.layers);
  const deepest = Math.max(...model.layers.map((row) => Math.min(row.path.split('.').length, 12)));
  const state = { column: -1, down: false, text: '' };
  const head = el('tr');
  const body = el('tbody');
  const foot = el('tfoot');
  const found = el('span', { class: 'found', role: 'status' });
  const most = Math.max(...model.layers.map((row) => Math.max(row.parameter_bytes, row.feature_bytes)), 1);

  const buttons = LAYER_COLUMNS.map((shown, at) => {
    const button = el('button', { type: 'button', onclick: () => {
      // A third click restores the order of the model.
      if (state.column !== at) Object.assign(state, { column: at, down: Boolean(shown.number) });
      else if (state.down === Boolean(shown.number)) state.down = !state.down;
      else state.column = -1;
      draw();
    } }, el('span', { class: 'label' }, shown.label), el('span', { class: 'arrow', 'aria-hidden': 'true' }));
    head.append(el('th', { scope: 'col', class: cellClass(shown) }, button));
    return button;
  });

  const meter = (bytes, leaf) => [leaf ? el('i', { class: 'meter', 'aria-hidden': 'true', style: { width: `${(bytes / most) * 100}%` } }) : null, bytes === 0 ? el('span', { class: 'none' }, '–') : amount(bytes)];

  function line(node, indent, forced) {
    const { row } = node;
    const cells = row
      ? [
        [el('span', { class: 'indent', style: { '--depth': indent } }), el('span', { class: 'fold' }), cutPath(state.text || state.column >= 0 ? row.path : node.name, inferred(row))],
        [cut(row.kind), row.shares_memory ? el('span', { class: 'tag', title: 'Burn allocated no memory for this output' }, 'shared') : null],
        row.output.join(' × '), row.dtype,
        row.parameters ? el('span', { title: `${count(row.learnable)} learnable` }, count(row.parameters)) : el('span', { class: 'none' }, '–'),
        meter(row.parameter_bytes, true), meter(row.feature_bytes, true), sourceOf(row.source),
      ]
      : [
        [el('span', { class: 'indent', style: { '--depth': indent } }), Object.assign(el('button', { type: 'button', class: 'fold', 'aria-expanded': String(node.open || forced), 'aria-label': `${node.path}: ${plural(node.rows, 'layer')}`, onclick: () => {
          node.open = !node.open;
          draw();
          // `draw` replaced the button, so keyboard focus moves to its replacement.
          [...body.querySelectorAll('.fold')].find((button) => button.node === node)?.focus();
        } }, node.open || forced ? '▾' : '▸'), { node }), el('b', {}, cutPath(state.column >= 0 ? node.path : node.name))],
        el('span', { class: 'muted' }, plural(node.rows, 'layer')), '', '', count(node.parameters), meter(node.bytes, false), meter(node.features, false), '',
      ];
    const kinds = [row ? row.activation && 'activation' : 'group', row && row.path === changed && 'changed'];
    return el('tr', { class: kinds.filter(Boolean).join(' ') || null }, cells.map((cell, at) => el('td', { class: cellClass(LAYER_COLUMNS[at]) }, cell)));
  }

  function draw() {
    const wanted = state.text.toLowerCase();
    const matches = (row) => `${row.path} ${row.kind} ${row.output.join(' × ')} ${row.dtype} ${row.source?.file ?? ''}`.toLowerCase().includes(wanted);
    const lines = [];
    const sums = { parameters: 0, bytes: 0, features: 0, rows: 0 };
    const visit = (node, indent) => {
      const parts = node.parts.slice();
      if (state.column >= 0) {
        const { value } = LAYER_COLUMNS[state.column];
        parts.sort((a, b) => {
          const [left, right] = [value(a), value(b)];
          return (state.down ? -1 : 1) * (typeof left === 'string' ? left.localeCompare(right, 'en', { numeric: true }) : left - right);
        });
      }
      for (const part of parts) {
        if (part.row) {
          if (wanted && !matches(part.row)) continue;
          lines.push(line(part, indent, false));
        } else if (wanted) {
          const before = lines.length;
          lines.push(line(part, indent, true));
          visit(part, indent + 1);
          if (lines.length === before + 1) lines.pop();
        } else {
          lines.push(line(part, indent, false));
          if (part.open) visit(part, indent + 1);
        }
      }
    };
    visit(tree, 0);
    for (const row of model.layers) {
      if (wanted && !matches(row)) continue;
      sums.rows += 1;
      sums.parameters += row.parameters;
      sums.bytes += row.parameter_bytes;
      sums.features += row.feature_bytes;
    }
    buttons.forEach((button, at) => button.parentElement.setAttribute('aria-sort', at === state.column ? (state.down ? 'descending' : 'ascending') : 'none'));
    body.replaceChildren(...lines);
    foot.replaceChildren(el('tr', {}, el('th', { scope: 'row' }, wanted ? 'matching layers' : 'all layers'), el('td', {}, plural(sums.rows, 'row')), el('td'), el('td', { class: 'minor' }),
      el('td', { class: 'number minor' }, count(sums.parameters)), el('td', { class: 'number' }, amount(sums.bytes)), el('td', { class: 'number' }, amount(sums.features)), el('td')));
    found.textContent = wanted ? `${count(sums.rows)} of ${count(model.layers.length)}` : '';
  }

  function fold(depth) {
    const visit = (node) => {
      for (const part of node.parts) {
        part.open = part.depth < depth;
        visit(part);
      }
    };
    visit(tree);
    draw();
  }
  const depths = deepest > 1 ? el('div', { class: 'tools', role: 'group', 'aria-label': 'fold by depth' }, el('span', { class: 'muted' }, 'depth'),
    [...Array(deepest).keys()].slice(0, 6).map((at) => el('button', { type: 'button', onclick: () => fold(at + 1) }, at + 1 === deepest ? 'all' : String(at + 1)))) : null;
  const input = el('input', { type: 'search', placeholder: 'layer1, Conv2d, 64 × 56 …', 'aria-label': 'filter layers', oninput: (event) => {
    state.text = event.target.value.trim();
    draw();
  } });
  const { totals } = model;
  const total = (label, text, title) => el('div', { title }, el('dt', {}, label), el('dd', {}, text));
  draw();
  return section('Layers', { own: 'Sizes are logical (without rounding). Each activation layer has its own feature map.', fused: 'Sizes are logical (without rounding). Activation layers are part of the layer before them.', 'in-place': 'Sizes are logical (without rounding). Activation layers work in the memory of their input and count nothing.' }[model.activations],
    el('div', { class: 'row' }, depths, el('label', { class: 'filter' }, el('span', {}, 'filter'), input, found)),
    scrolling('layers', el('table', { class: 'layers' }, el('caption', {}, 'layers'), el('thead', {}, head), body, foot), 'tall'),
    el('dl', { class: 'totals' },
      totals.batch_size === null ? null : total('batch size', count(totals.batch_size)),
      total('parameters', count(totals.parameters), `${count(totals.learnable)} learnable, ${count(totals.not_learnable)} not`),
      total('not learnable', count(totals.not_learnable)),
      total('parameter bytes', amount(totals.parameter_bytes)),
      total('feature maps', amount(totals.feature_bytes), 'including inputs'),
      total('of which inputs', amount(totals.input_bytes)),
      total('forward and backward', amount(totals.forward_backward_bytes), 'twice the feature maps that layers make: outputs and their gradients'),
      total('parameters and feature maps', amount(totals.total_bytes))));
}

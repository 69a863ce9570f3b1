// Phases, leaks, savings, lines, and what the figures rest on.

const signed = (bytes) => (bytes === null || bytes === undefined ? amount(null) : el('span', { class: bytes > 0 ? 'more' : bytes < 0 ? 'less' : null, title: exact(bytes) }, bytes === 0 ? '0 B' : change(bytes)));

function phasePanel(model) {
  if (model.phases.length === 0) return null;
  const rows = model.phases.map((row, order) => ({ ...row, order, of: PHASE.get(row.phase) }));
  const bytes = (label, key, show = amount) => ({ label, number: true, value: (row) => row[key], cell: (row) => show(row[key]) });
  return section('Phases', 'Step by step. The traced pass is the warm one, looked at; in the cold pass, the first launch ever, live is not observed.',
    sortable({
      caption: 'phases',
      rows,
      step: 60,
      hint: 'step 1, backward …',
      filterBy: (row) => `${row.pass} ${where(row.step, row.of)}`,
      columns: [
        { label: 'pass', value: (row) => row.pass, cell: (row) => row.pass },
        { label: 'step', value: (row) => (row.step === null ? -1 : row.step), number: true, cell: (row) => (row.step === null ? '–' : String(row.step)) },
        { label: 'phase', value: (row) => row.order, cell: (row) => [named(row.of), row.failed ? el('span', { class: 'tag bad' }, 'ended here') : null] },
        bytes('live at its end', 'live_end'), bytes('change', 'live_change', signed), bytes('most live', 'live_peak'),
        bytes('reserved at its end', 'reserved_end'), bytes('change', 'reserved_change', signed), bytes('most reserved', 'reserved_peak'),
      ],
    }).root);
}

// What an explanation has only where it was asked for.
const absent = (title, why, option, what) => section(title, null, el('p', { class: 'note' }, why, el('code', {}, `cargo vram report -m MODEL ${option}`), ' and ', el('code', {}, `cargo vram explain MODEL ${option}`), ` ${what}.`));

function leakPanel(model) {
  const { leak } = model;
  if (leak.found === 'no') return section('Leaks', null, el('p', { class: 'note' }, 'None: live memory does not grow with each step.'));
  if (leak.found === 'unknown') return absent('Leaks', `Too few steps to tell: ${leak.seen} of ${leak.needed}. `, '--leak', 'run more');
  const [least, most] = [Math.min(...leak.steps), Math.max(...leak.steps, 1)];
  const tensors = leak.tensors.map((tensor) => model.tensors[tensor]).filter((tensor) => !isView(tensor));
  const shown = leak.steps.slice(-60);
  const bars = shown.map((bytes, at) => el('i', { style: { height: `${most === least ? 100 : 12 + ((bytes - least) / (most - least)) * 88}%` }, title: `step ${leak.steps.length - shown.length + at}: ${size(bytes)}, ${exact(bytes)}` }));
  return section('A leak', null,
    el('p', { class: 'alert' }, el('b', {}, leak.summary)),
    el('p', { class: 'note' }, 'Memory in use at the end of each step, without padding. The bars begin shortly below the least.'),
    el('div', { class: 'bars', role: 'img', 'aria-label': `memory in use at the end of each step: ${shown.map(size).join(', ')}` }, bars),
    tensors.length === 0 ? null : sortable({
      caption: 'tensors made in a step that are still there at the end',
      rows: tensors,
      step: 20,
      sort: [0, true],
      columns: [
        { label: 'bytes', number: true, value: (tensor) => tensor.bytes, cell: (tensor) => amount(tensor.bytes) },
        { label: 'shape', value: (tensor) => tensor.shape, cell: (tensor) => tensor.shape, class: 'shape' },
        { label: 'category', value: (tensor) => tensor.category.label, cell: (tensor) => named(tensor.category), class: 'dots' },
        { label: 'module', value: (tensor) => tensor.module, cell: (tensor) => cutPath(tensor.module) },
        { label: 'operation', value: (tensor) => tensor.operation, cell: (tensor) => cut(tensor.operation) },
        { label: 'source', value: (tensor) => tensor.source, cell: (tensor) => sourceOf(tensor.source) },
        { label: 'made in', value: (tensor) => tensor.born, cell: (tensor) => where(tensor.step, tensor.phase) },
      ],
    }).root);
}

function savingPanel(model) {
  const below = model.savings_below.filter(Boolean).map((text) => el('p', { class: 'note' }, text));
  if (model.savings.length === 0 && below.length === 0) return absent('What would take less', '', '--savings', 'run the model with one change after the other, and tell what each saves');
  return section('What would take less', null, sortable({
    caption: 'savings',
    rows: model.savings,
    columns: [
      { label: 'change', value: (row) => row.change, cell: (row) => [row.change, row.note ? el('div', { class: 'muted' }, row.note) : null], class: 'words' },
      { label: 'saves, live', number: true, value: (row) => row.saved_live, cell: (row) => amount(row.saved_live) },
      { label: 'saves, reserved', number: true, value: (row) => row.saved_reserved, cell: (row) => amount(row.saved_reserved) },
      { label: 'live then', number: true, value: (row) => row.live, cell: (row) => amount(row.live) },
      { label: 'reserved then', number: true, value: (row) => row.reserved, cell: (row) => amount(row.reserved) },
      { label: 'costs', value: (row) => row.cost, cell: (row) => row.cost, class: 'words' },
      { label: 'known from', value: (row) => row.known_from, cell: (row) => row.known_from },
    ],
  }).root, below);
}

function linePanel(model) {
  if (model.lines.length === 0) return absent('Line by line', '', '--lines', 'tell what came and went while a line of the model’s own code ran');
  const most = Math.max(...model.lines.map((row) => Math.abs(row.change)), 1);
  const list = (indices) => indices.slice(0, 30).map((tensor) => `${model.tensors[tensor].shape} ${model.tensors[tensor].dtype}, ${size(model.tensors[tensor].bytes)}`).join('\n') + (indices.length > 30 ? `\nand ${indices.length - 30} more` : '');
  const rows = model.lines.map((row, order) => ({ ...row, order }));
  return section('Line by line', 'What came and went while a line of the model’s own code ran.', sortable({
    caption: 'lines',
    rows,
    step: 40,
    hint: 'file, function, step …',
    filterBy: (row) => `${row.source.file}:${row.source.line} ${row.source.function} ${where(row.step, PHASE.get(row.phase))}`,
    columns: [
      { label: 'line', value: (row) => `${row.source.file}:${String(row.source.line).padStart(7, '0')}`, cell: (row) => sourceOf(row.source) },
      { label: 'function', value: (row) => row.source.function, cell: (row) => el('code', { class: 'muted' }, cutPath(row.source.function)) },
      { label: 'when', value: (row) => row.order, cell: (row) => where(row.step, PHASE.get(row.phase)) },
      { label: 'change', number: true, value: (row) => row.change, cell: (row) => [el('span', { class: 'delta', 'aria-hidden': 'true' }, el('i', { class: row.change < 0 ? 'less' : 'more', style: { width: `${(Math.abs(row.change) / most) * 50}%` } })), signed(row.change)] },
      { label: 'tensors', number: true, value: (row) => row.came.length - row.went.length, cell: (row) => [el('span', { title: list(row.came) }, `+${row.came.length}`), ' ', el('span', { title: list(row.went) }, `−${row.went.length}`)] },
      { label: 'live after', number: true, value: (row) => row.live, cell: (row) => amount(row.live) },
    ],
  }).root);
}

function restPanel(model) {
  const { run } = model;
  const { autotune } = run;
  const choices = ['recorded', 'nearest', 'assumed'].filter((key) => autotune[key] > 0).map((key) => `${count(autotune[key])} ${key}`);
  // What is assumed of a card is told by the run already.
  const told = (held) => run.assumptions.some((text) => text.includes(held.source));
  const outside = (label, held) => held && !told(held) && `${label}: ${size(held.bytes)}, ${held.obtained} (${held.source})`;
  const items = [
    ...run.assumptions, ...model.assumptions,
    outside('context', run.gpu.context), outside('modules', run.gpu.modules),
    choices.length ? `choices of autotune: ${choices.join(', ')}` : null,
    model.leak.found === 'unknown' ? `whether live memory grows from step to step is not known: too few steps to tell, ${model.leak.seen} of ${model.leak.needed}` : null,
    ...model.left_out.map((text) => `left out of this page: ${text}`),
  ].filter(Boolean);
  return section('What these figures rest on', null,
    el('ul', { class: 'rest' }, items.map((text) => el('li', {}, text))),
    el('p', { class: 'note' }, `${model.tool.name} ${model.tool.version} · Burn ${run.burn} · fingerprint ${model.tool.fingerprint.slice(0, 16)}${model.commit ? ` · commit ${model.commit.slice(0, 12)}` : ''}${run.uuid ? ` · ${run.uuid}` : ''}`));
}

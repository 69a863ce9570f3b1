// The panels for phases, leaks, savings and source lines, and for what the values depend on.

const signed = (bytes) => (bytes === null || bytes === undefined ? amount(null) : el('span', { class: bytes > 0 ? 'more' : bytes < 0 ? 'less' : null, title: exact(bytes) }, bytes === 0 ? '0 B' : change(bytes)));

function phasePanel(model) {
  if (model.phases.length === 0) return null;
  const all = model.phases.map((row, order) => ({ ...row, order, of: PHASE.get(row.phase) }));
  // A column without any value is left out.
  const bytes = (rows) => (label, key, show = amount) => (rows.every((row) => row[key] === null) ? null : { label, number: true, value: (row) => row[key], cell: (row) => show(row[key]) });
  const table = (caption, rows) => {
    const figure = bytes(rows);
    return sortable({
      caption,
      rows,
      step: 60,
      hint: 'step 1, backward …',
      filterBy: (row) => `${row.pass} ${where(row.step, row.of)}`,
      columns: [
        { label: 'step', value: (row) => (row.step === null ? -1 : row.step), number: true, cell: (row) => (row.step === null ? '–' : String(row.step)) },
        { label: 'phase', value: (row) => row.order, cell: (row) => [named(row.of), row.failed ? el('span', { class: 'tag bad' }, 'run ended here') : null] },
        figure('live at end', 'live_end'), figure('change', 'live_change', signed), figure('peak live', 'live_peak'),
        figure('reserved at end', 'reserved_end'), figure('change', 'reserved_change', signed), figure('peak reserved', 'reserved_peak'),
      ].filter(Boolean),
    }).root;
  };
  const [cold, later] = [all.filter((row) => row.pass === 'cold'), all.filter((row) => row.pass !== 'cold')];
  const first = cold.length === 0 ? null : el('details', { open: later.length === 0 }, el('summary', {}, `Cold pass: ${plural(cold.length, 'phase')}`), el('p', { class: 'note' }, 'The cold pass is the first run of the model: kernels compile and autotune tries candidates. Only reserved memory is observed in this pass.'), table('phases of the cold pass', cold));
  return section('Phases', later.length === 0 ? null : 'Step by step, in the traced pass: a warm pass that observes every tensor.', later.length === 0 ? null : table('phases', later), first);
}

// A panel that an explanation lacks unless `option` was given. It says which commands add it.
const absent = (title, why, option, what) => section(title, null, el('p', { class: 'note' }, `${why}To ${what}, run `, el('code', {}, `cargo vram report -m MODEL ${option}`), ' or ', el('code', {}, `cargo vram explain MODEL ${option}`), '.'));

function leakPanel(model) {
  const { leak } = model;
  if (leak.found === 'no') return section('Leaks', null, el('p', { class: 'note' }, `No leak: live memory does not grow from ${leak.interval} to ${leak.interval}.`));
  if (leak.found === 'unknown') return absent('Leaks', `Leak detection needs ${plural(leak.needed, leak.interval)}, but the run had ${leak.seen}. `, leak.interval === 'step' ? '--leak' : `--epochs ${leak.needed}`, 'detect leaks');
  const [least, most] = [Math.min(...leak.steps), Math.max(...leak.steps, 1)];
  // A tensor that shares the memory of another one holds it, too. Memory that several share is listed once.
  const [holders, held] = [memoryHolders(model.tensors), new Map()];
  for (const index of leak.tensors) {
    const tensor = model.tensors[index];
    const holder = holders[index];
    if (!held.has(holder) || holder === tensor) held.set(holder, { ...tensor, bytes: holder.bytes });
  }
  const tensors = [...held.values()];
  const shown = leak.steps.slice(-60);
  const bars = shown.map((bytes, at) => el('i', { style: { height: `${most === least ? 100 : 12 + ((bytes - least) / (most - least)) * 88}%` }, title: `${leak.interval} ${leak.first + leak.steps.length - shown.length + at}: ${size(bytes)}, ${exact(bytes)}` }));
  return section('Leak', null,
    el('p', { class: 'alert' }, el('b', {}, leak.summary)),
    el('p', { class: 'note' }, `Memory in use at the end of each ${leak.interval}, without padding. The bars start just below the smallest value.`),
    el('div', { class: 'bars', role: 'img', 'aria-label': `memory in use at the end of each ${leak.interval}: ${shown.map(size).join(', ')}` }, bars),
    leak.keepers.map((keeper) => el('p', { class: 'note' }, 'Most likely kept by ', el('b', {}, keeper.place), ' ', el('code', {}, keeper.text))),
    tensors.length === 0 ? null : sortable({
      caption: `tensors that ${leak.interval === 'step' ? 'a step' : 'an epoch'} made and that still exist at the end`,
      rows: tensors,
      step: 20,
      sort: [0, true],
      columns: [
        { label: 'bytes', number: true, value: (tensor) => tensor.bytes, cell: (tensor) => amount(tensor.bytes) },
        { label: 'shape', value: (tensor) => tensor.shape, cell: (tensor) => tensor.shape, class: 'shape' },
        { label: 'category', value: (tensor) => tensor.category.label, cell: (tensor) => named(tensor.category), class: 'dots' },
        { label: 'module', value: (tensor) => tensor.module, cell: (tensor) => cutPath(tensor.module) },
        { label: 'source', value: (tensor) => tensor.source, cell: (tensor) => sourceOf(tensor.source) },
        { label: 'operation', value: (tensor) => tensor.operation, cell: (tensor) => cut(tensor.operation) },
        { label: 'made in', value: (tensor) => tensor.born, cell: (tensor) => where(tensor.step, tensor.phase) },
      ],
    }).root);
}

function savingPanel(model) {
  const below = model.savings_below.filter(Boolean).map((text) => el('p', { class: 'note' }, text));
  if (model.savings.length === 0 && below.length === 0) return absent('Savings', '', '--savings', 'see how much memory each of several changes saves');
  return section('Savings', null, sortable({
    caption: 'savings',
    rows: model.savings,
    columns: [
      { label: 'change', value: (row) => row.change, cell: (row) => [row.change, row.note ? el('div', { class: 'muted' }, row.note) : null], class: 'words' },
      { label: 'live saved', number: true, value: (row) => row.saved_live, cell: (row) => amount(row.saved_live) },
      { label: 'reserved saved', number: true, value: (row) => row.saved_reserved, cell: (row) => amount(row.saved_reserved) },
      { label: 'live after', number: true, value: (row) => row.live, cell: (row) => amount(row.live) },
      { label: 'reserved after', number: true, value: (row) => row.reserved, cell: (row) => amount(row.reserved) },
      { label: 'cost', value: (row) => row.cost, cell: (row) => row.cost, class: 'words' },
      { label: 'based on', value: (row) => row.known_from, cell: (row) => row.known_from },
    ],
  }).root, below);
}

// One axis for all bars of a column, in the column's head. It includes 0 and all values.
function barAxis(values) {
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const whole = Math.max(high - low, 1);
  const at = (value) => ((value - low) / whole) * 100;
  const zero = at(0);
  const axis = el('div', { class: 'axis', 'aria-hidden': 'true' },
    el('span', {}, low < 0 ? size(low) : '0'),
    low < 0 && zero > 35 && zero < 65 ? el('span', { class: 'zero', style: { left: `${zero}%` } }, '0') : null,
    el('span', {}, high > 0 ? `+${size(high)}` : '0'));
  const bar = (value) => el('span', { class: 'delta', 'aria-hidden': 'true', style: { '--zero': `${zero}%` } },
    el('i', { class: value < 0 ? 'less' : 'more', style: { left: `${at(Math.min(value, 0))}%`, width: `${(Math.abs(value) / whole) * 100}%` } }));
  return { axis, bar };
}

function linePanel(model) {
  if (model.lines.length === 0) return absent('Line by line', '', '--lines', 'see which tensors were made and freed while each line of the model’s own code ran');
  const { axis, bar } = barAxis(model.lines.map((row) => row.change));
  const list = (indices) => indices.slice(0, 30).map((tensor) => `${model.tensors[tensor].shape} ${model.tensors[tensor].dtype}, ${size(model.tensors[tensor].bytes)}`).join('\n') + (indices.length > 30 ? `\nand ${indices.length - 30} more` : '');
  const rows = model.lines.map((row, order) => ({ ...row, order }));
  const any = rows.some((row) => row.text !== null);
  const missing = model.without_text;
  const why = any ? `No source text for ${missing.slice(0, 5).join(', ')}${missing.length > 5 ? ` and ${plural(missing.length - 5, 'other file')}` : ''}: when the model was explained, the workspace did not have ${missing.length === 1 ? 'this file' : 'these files'} or ${missing.length === 1 ? 'its' : 'their'} lines.` : 'This explanation has no source text. To see it here, explain the model again with --lines in its workspace.';
  return section('Line by line', 'The tensors that were made and freed while each line of the model’s own code ran.',
    missing.length === 0 ? null : el('p', { class: 'note untold' }, why),
    sortable({
      caption: 'lines',
      rows,
      step: 40,
      hint: 'file, function, text, step …',
      filterBy: (row) => `${row.source.file}:${row.source.line} ${row.source.function} ${row.text ?? ''} ${where(row.step, PHASE.get(row.phase))}`,
      columns: [
        { label: 'line', value: (row) => `${row.source.file}:${String(row.source.line).padStart(7, '0')}`, cell: (row) => sourceOf(row.source) },
        any
          ? { label: 'source', value: (row) => row.text, cell: (row) => (row.text === null ? el('span', { class: 'none' }, '–') : el('code', { class: 'says', title: row.text }, row.text)) }
          : { label: 'function', value: (row) => row.source.function, cell: (row) => el('code', { class: 'muted' }, cutPath(row.source.function)) },
        { label: 'when', value: (row) => row.order, cell: (row) => where(row.step, PHASE.get(row.phase)) },
        { label: 'change', number: true, value: (row) => row.change, cell: (row) => signed(row.change) },
        { label: 'bar', title: 'the change as a bar; all rows share one axis', value: (row) => row.change, cell: (row) => bar(row.change), under: axis },
        { label: 'tensors', number: true, value: (row) => row.came.length - row.went.length, cell: (row) => [el('span', { title: list(row.came) }, `+${row.came.length}`), ' ', el('span', { title: list(row.went) }, `−${row.went.length}`)] },
        { label: 'live after', number: true, value: (row) => row.live, cell: (row) => amount(row.live) },
      ],
    }).root);
}

function restPanel(model) {
  const { run } = model;
  const { autotune } = run;
  const choices = ['recorded', 'nearest', 'assumed'].filter((key) => autotune[key] > 0).map((key) => `${count(autotune[key])} ${key}`);
  // The assumptions of an estimate already include the assumed values of the GPU.
  const isListed = (held) => run.mode === 'estimate' && held.obtained === 'assumed';
  const outside = (label, held) => held && !isListed(held) && `${label}: ${size(held.bytes)}, ${held.obtained} (${held.source})`;
  const items = [
    ...run.assumptions, ...model.assumptions,
    outside('context', run.gpu.context), outside('modules', run.gpu.modules),
    choices.length ? `autotune choices: ${choices.join(', ')}` : null,
    model.leak.found === 'unknown' ? `leaks are unknown: leak detection needs ${plural(model.leak.needed, model.leak.interval)}, but the run had ${model.leak.seen}` : null,
    ...model.left_out.map((text) => `left out of this page: ${text}`),
  ].filter(Boolean);
  return section('What these values depend on', null,
    el('ul', { class: 'rest' }, items.map((text) => el('li', {}, text))),
    el('p', { class: 'note' }, `${model.tool.name} ${model.tool.version} · Burn ${run.burn} · fingerprint ${model.tool.fingerprint.slice(0, 16)}${run.uuid ? ` · ${run.uuid}` : ''}`));
}

// The memory at the selected moment: by category, by module and by tensor.

function momentPanel(model, { chart }) {
  const { line } = model;
  const title = el('p', { class: 'moment', role: 'status' });
  const bar = el('div', { class: 'bar', role: 'img' });
  const sums = el('table', { class: 'sums' });
  const map = treemap({ onpoint: (tensor) => chart().highlight(tensor) });
  const lifetime = (tensor) => {
    const until = Math.min(tensor.died, line.samples);
    const of = Math.max(line.samples, 1);
    const text = `from ${where(tensor.step, tensor.phase)} (sample ${count(tensor.born)}) ${tensor.died === Infinity ? 'to the end' : `until sample ${count(tensor.died)}`}`;
    return el('span', { class: 'life', title: text, role: 'img', 'aria-label': text },
      el('i', { style: { left: `${(tensor.born / of) * 100}%`, width: `${Math.max(((until - tensor.born) / of) * 100, 1.5)}%`, background: tensor.category.color } }));
  };
  const origin = (tensor) => (tensor.step === null ? -1 : tensor.step) * 10 + page.phases.indexOf(tensor.phase);
  const columns = [
    { label: 'bytes', number: true, value: (tensor) => tensor.bytes, cell: (tensor) => amount(tensor.bytes) },
    { label: 'shape', value: (tensor) => tensor.shape, cell: (tensor) => el('span', { title: tensor.dtype }, tensor.shape), class: 'shape' },
    { label: 'dtype', value: (tensor) => tensor.dtype, cell: (tensor) => tensor.dtype, class: 'minor' },
    { label: 'category', value: (tensor) => tensor.category.label, cell: (tensor) => named(tensor.category), class: 'dots' },
    { label: 'module', value: (tensor) => tensor.module, cell: (tensor) => cutPath(tensor.module, inferred(tensor)) },
    { label: 'source', value: (tensor) => tensor.source, cell: (tensor) => sourceOf(tensor.source) },
    { label: 'operation', value: (tensor) => tensor.operation, cell: (tensor) => cut(isView(tensor) ? `${tensor.operation} shares ${model.tensors[tensor.shares].shape}` : tensor.operation) },
    { label: 'made in', value: origin, cell: (tensor) => where(tensor.step, tensor.phase) },
    { label: 'lifetime', title: 'when the tensor existed, on the whole timeline; sorts by duration', number: true, value: (tensor) => Math.min(tensor.died, line.samples) - tensor.born, cell: lifetime },
  ];
  let views = '';
  const table = sortable({
    caption: 'tensors at this moment',
    columns,
    rows: [],
    step: 25,
    sort: [0, true],
    onpoint: (tensor) => chart().highlight(tensor),
    filterBy: (tensor) => `${tensor.module ?? ''} ${tensor.operation} ${tensor.shape} ${tensor.dtype} ${tensor.category.label} ${tensor.source ?? ''}`,
    foot: (rows) => [el('td', { class: 'number' }, amount(rows.reduce((sum, tensor) => sum + tensor.bytes, 0))), el('td', { colspan: columns.length - 1 }, plural(rows.length, 'tensor'), views)],
  });

  // Views take no memory, so the table lists them only after the user selected a moment.
  function show(index, chosen) {
    const atPeak = line.count === 0 || line.sampleAt(index) === model.peak.sample;
    const sample = line.count === 0 ? 0 : line.sampleAt(index);
    const live = line.count === 0 ? model.peak.live : line.live[index];
    const reserved = line.count === 0 ? model.peak.reserved : line.reserved[index];
    const span = line.span(sample);
    const [kernel, kernelName] = line.count === 0 ? [model.peak.kernel, model.peak.kernel_name] : [line.kernels[line.kernel[index]], line.kernelNames[line.kernel[index]]];
    const made = madeBy(line.madeLast(index), model.texts);
    put(title,
      el('b', {}, atPeak ? 'The peak' : 'Moment'),
      `: sample ${count(sample)}, ${atPeak ? where(model.peak.step, PHASE.get(model.peak.phase)) : span ? where(span.step, span.phase) : 'before the first phase'}`,
      made.length ? [' · ', made] : null,
      kernel ? [' · ', el('code', { class: 'muted', title: kernel }, kernelName)] : null,
    );
    const given = new Map(model.peak.categories.map(({ category, bytes }) => [category, bytes]));
    const categories = STACK.map((category, number) => [category, atPeak ? given.get(category.key) ?? 0 : line.series[number][index]]);
    const held = categories.filter(([, bytes]) => bytes > 0);
    const above = [['fragmentation', Math.max(reserved - live, 0)], ...(atPeak ? ['context', 'modules'].map((key) => [key, given.get(key) ?? 0]) : [])].map(([key, bytes]) => [CATEGORY.get(key), bytes]);
    const whole = Math.max(atPeak ? model.peak.process : reserved, 1);
    bar.setAttribute('aria-label', held.map(([category, bytes]) => `${category.label} ${size(bytes)}`).join(', '));
    bar.replaceChildren(...[...held, ...above.filter(([, bytes]) => bytes > 0)].map(([category, bytes]) =>
      el('span', { title: `${category.label}: ${size(bytes)}, ${exact(bytes)}`, class: category.key === 'fragmentation' ? 'hatched' : null, style: { 'flex-grow': String(bytes / whole), background: category.key === 'fragmentation' ? '' : category.color } })));
    const row = (category, bytes) => el('tr', {}, el('td', {}, named(category)), el('td', { class: 'number' }, amount(bytes)), el('td', { class: 'number exact' }, exact(bytes)), el('td', { class: 'number' }, percent(bytes, whole)));
    const sum = (label, bytes) => el('tr', { class: 'sum' }, el('th', { scope: 'row' }, `= ${label}`), el('td', { class: 'number' }, amount(bytes)), el('td', { class: 'number exact' }, exact(bytes)), el('td', { class: 'number' }, percent(bytes, whole)));
    const added = categories.reduce((total, [, bytes]) => total + bytes, 0);
    put(sums, 
      el('caption', {}, 'memory by category'),
      el('thead', {}, el('tr', {}, ['category', 'size', 'bytes', 'share'].map((text, at) => el('th', { scope: 'col', class: [null, 'number', 'number exact', 'number'][at] }, text)))),
      el('tbody', {}, held.map(([category, bytes]) => row(category, bytes)), sum('live', added), row(...above[0]), sum('reserved', reserved),
        atPeak && model.peak.process > 0 ? [above.slice(1).map(([category, bytes]) => row(category, bytes)), sum('process', model.peak.process)] : null),
    );
    const there = line.count === 0 ? model.peak.tensors.map((tensor) => model.tensors[tensor]) : model.thereAt(sample);
    const ofTensors = there.reduce((total, tensor) => total + tensor.bytes, 0);
    const workspace = categories.find(([category]) => category.key === 'workspace');
    const known = new Map();
    for (const tensor of there) known.set(tensor.category.key, (known.get(tensor.category.key) ?? 0) + tensor.logical);
    // The workspace category can hold more than its tensors; the rest is shown as workspace. What is left after that
    // has no tensor on this page, so it is shown as unattributed.
    const own = Math.min(Math.max(workspace[1] - (known.get('workspace') ?? 0), 0), Math.max(live - ofTensors, 0));
    map.show(there, [[workspace[0], own], [CATEGORY.get('unattributed'), Math.max(live - ofTensors - own, 0)]]);
    const holding = there.filter((tensor) => !isView(tensor));
    views = chosen || holding.length === there.length ? '' : `, and ${plural(there.length - holding.length, 'view')} of their memory; click the chart to list views, too`;
    table.show(chosen ? there : holding);
  }

  const root = section('Memory at this moment', 'Shows the peak until you select another moment above. Sizes are exact to the byte.',
    title, bar,
    el('div', { class: 'split' }, scrolling('memory by category', sums), el('div', { class: 'mapbox' }, el('h3', {}, 'by module'), el('p', { class: 'note' }, 'The area of a tile shows its bytes. Click a module to open it.'), map.root)),
    el('h3', {}, 'tensors'), table.root);
  return { root, show };
}

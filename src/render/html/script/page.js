// The page: a headline and panels for each model. Several models are tabs, or stand side by side.

const models = page.models.map(unpack);
const host = document.getElementById('page');
const views = [];

function tile(label, meaning, bytes, cold) {
  return el('div', { class: 'tile' }, el('dt', { title: meaning }, label),
    el('dd', {}, bytes === null ? '–' : [el('b', {}, size(bytes)), el('span', { class: 'exact' }, exact(bytes))],
      cold === null || cold === undefined ? null : el('span', { class: 'muted', title: `cold pass: ${exact(cold)}` }, `cold pass: ${size(cold)}`)));
}

function gpuBar(model) {
  const { gpu, peaks } = model.run;
  const process = Math.max(model.peak.process, peaks.warm.process ?? 0);
  const parts = model.peak.categories.filter(({ bytes }) => bytes > 0);
  const order = page.categories.map((category) => category.key);
  parts.sort((a, b) => order.indexOf(a.category) - order.indexOf(b.category));
  const total = Math.max(gpu.total_bytes, process, 1);
  const free = total - parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const text = `${size(process)} of ${size(gpu.total_bytes)} on the GPU, ${percent(process, gpu.total_bytes)}`;
  return el('div', { class: 'gpubar' },
    el('div', { class: 'bar slim', role: 'img', 'aria-label': text }, parts.map(({ category, bytes }) => el('span', { class: category === 'fragmentation' ? 'hatched' : null, title: `${CATEGORY.get(category).label}: ${size(bytes)}`, style: { 'flex-grow': String(bytes / total), background: category === 'fragmentation' ? '' : CATEGORY.get(category).color } })), el('span', { class: 'free', title: `free: ${size(Math.max(free, 0))}`, style: { 'flex-grow': String(Math.max(free, 0) / total) } })),
    el('p', { class: 'note' }, text));
}

// The explained commit and its date. The page does not show the time of the run, because two runs of a commit are the
// same.
function commitOf(model) {
  if (!model.commit) return null;
  const date = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d)?(Z|[+-]\d\d:\d\d)$/.exec(model.commit_date ?? '');
  const made = date ? `${date[1]} ${date[2]} ${date[3] === 'Z' ? 'UTC' : date[3]}` : model.commit_date;
  return el('p', { class: 'commit' }, 'commit ', el('code', { title: model.commit }, model.commit.slice(0, 12)), made ? [' from ', el('time', { title: model.commit_date }, made)] : null, model.dirty ? ', with uncommitted changes' : null);
}

function headline(model) {
  const { run, peak } = model;
  const { warm, cold } = run.peaks;
  const measured = run.mode === 'measure';
  const badge = (text, kind, title) => el('span', { class: `badge ${kind ?? ''}`, title }, text);
  const judged = limitLines(model);
  const made = madeBy(model.line.madeLast(model.line.indexOf(peak.sample)), model.texts);
  return el('header', { class: 'headline' },
    model.name ? el('p', { class: 'eyebrow' }, model.name) : null,
    el('h1', {}, run.budget ?? run.model, el('span', { class: 'on' }, ` on ${run.gpu.name}`)),
    commitOf(model),
    el('p', { class: 'badges' },
      badge(measured ? 'measured' : 'estimated', measured ? 'good' : 'accent', measured ? 'the model ran on a real GPU' : 'the model ran on a virtual GPU'),
      run.task ? badge({ train: 'training', infer: 'inference' }[run.task] ?? run.task) : null,
      run.inputs.map(([name, value]) => badge(`${name} = ${value}`)),
      badge(`Burn ${run.burn}${run.features ? ` ${run.features}` : ''}`), badge(run.package, null, 'package')),
    model.oom ? el('p', { class: 'alert bad', role: 'alert' }, el('b', {}, 'Out of memory'), ` ${model.oom}`) : null,
    model.partial ? el('p', { class: 'alert', role: 'alert' }, el('b', {}, 'Incomplete run: '), model.partial) : null,
    run.error ? el('p', { class: 'alert bad', role: 'alert' }, el('b', {}, `${run.error.code}. `), run.error.message, run.error.help ? el('span', { class: 'muted' }, ` ${run.error.help}`) : null) : null,
    el('dl', { class: 'tiles' },
      tile('live', 'bytes of the tensors that exist at the peak', peak.live, cold.live !== peak.live ? cold.live : null),
      tile('reserved', 'bytes that Burn’s allocator holds from the CUDA driver; they decide whether the GPU runs out of memory', warm.reserved ?? peak.reserved, cold.reserved),
      tile('process', measured ? 'GPU memory that the driver charges to the process' : 'reserved memory, CUDA context and loaded kernels', warm.process ?? peak.process, cold.process),
      el('div', { class: 'tile' }, el('dt', {}, 'peak in'), el('dd', {}, el('b', { class: 'words' }, where(peak.step, PHASE.get(peak.phase))), made.length ? el('span', { class: 'made' }, made) : null, el('span', { class: 'muted kernel', title: peak.kernel }, peak.kernel_name ?? ''))),
      judged.map((limit) => el('div', { class: `tile ${limit.over ? 'over' : 'within'}` }, el('dt', {}, `${limit.metric} limit`), el('dd', {}, el('b', {}, size(limit.bytes)), el('span', { class: 'muted' }, `${limit.over ? 'exceeded' : 'within limit'} · ${limit.label}`))))),
    gpuBar(model));
}

// `shared` is what two compared models have in common: the length of the axis, zooming, and the layer that changed
// most.
function view(model, highest, shared = {}) {
  let moment = null;
  const chart = timeline(model, { highest, onselect: (index) => later(index), extent: shared.extent, onview: shared.onview });
  let waiting = null;
  // A held arrow key moves the line at once. The tables follow when the line stops, because they are slow to draw.
  const later = (index) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => moment.show(index, true), 30);
  };
  moment = momentPanel(model, { chart: () => chart });
  const root = el('article', { class: 'model' }, headline(model),
    section('Memory over time', 'One sample before and one after each kernel launch. If several samples share a pixel, the chart shows the one with the most live memory.', chart.root),
    moment.root, leakPanel(model), savingPanel(model), layerPanel(model, shared.changed), phasePanel(model), linePanel(model), restPanel(model));
  const opening = shared.changed ? momentOf(model, shared.changed) ?? chart.peak : chart.peak;
  chart.choose(opening);
  // The page selected this moment, not the user, so the table leaves out views.
  clearTimeout(waiting);
  moment.show(opening, false);
  return { root, chart };
}

// The moment that makes a layer's output: in the step of the peak if that step makes it.
function momentOf(model, path) {
  const { line, peak } = model;
  if (line.count === 0) return null;
  const cut = path.lastIndexOf('.');
  const [module, operation] = [path.slice(0, Math.max(cut, 0)), path.slice(cut + 1)];
  const own = model.tensors.filter((tensor) => !isView(tensor) && (tensor.module === path || (tensor.module === module && tensor.operation === operation)));
  const made = own.filter((tensor) => tensor.phase === PHASE.get('forward'));
  const best = made.find((tensor) => tensor.step === peak.step) ?? made[0] ?? own[0];
  return best ? line.indexOf(best.born) : null;
}

function comparison(before, after, layers) {
  const rows = [];
  const row = (label, a, b, swatch = null, sum = false) => rows.push({ label, a: a ?? null, b: b ?? null, swatch, sum });
  row('live', before.peak.live, after.peak.live, null, true);
  row('reserved', before.run.peaks.warm.reserved ?? before.peak.reserved, after.run.peaks.warm.reserved ?? after.peak.reserved, null, true);
  row('reserved, cold pass', before.run.peaks.cold.reserved, after.run.peaks.cold.reserved);
  row('process', before.run.peaks.warm.process ?? before.peak.process, after.run.peaks.warm.process ?? after.peak.process, null, true);
  const at = (model, key) => model.peak.categories.find(({ category }) => category === key)?.bytes ?? 0;
  for (const category of page.categories) {
    const [a, b] = [at(before, category.key), at(after, category.key)];
    if (a > 0 || b > 0) row(category.label, a, b, category);
  }
  const most = Math.max(...rows.map(({ a, b }) => Math.max(a ?? 0, b ?? 0)), 1);
  const paired = (bytes, kind) => el('i', { class: kind, style: { width: `${((bytes ?? 0) / most) * 100}%` } });
  const line = ({ label, a, b, swatch, sum }) => el('tr', { class: sum ? 'sum' : null },
    el('th', { scope: 'row' }, swatch ? named(swatch) : label),
    el('td', { class: 'number' }, amount(a)), el('td', { class: 'number' }, amount(b)),
    el('td', { class: 'number' }, a === null || b === null ? amount(null) : signed(b - a)),
    el('td', { class: 'number' }, a ? `${b > a ? '+' : b < a ? '−' : ''}${percent(Math.abs(b - a), a)}` : '–'),
    el('td', { class: 'pair', 'aria-hidden': 'true' }, paired(a, 'before'), paired(b, 'after')));
  return section('Before and after', `${before.name ?? before.run.model} → ${after.name ?? after.run.model}: peaks, and the memory of each category at the peak. The two charts below have the same scale.`,
    causesOfGrowth(page.growth),
    layers.length ? layersThatDiffer(layers) : el('p', { class: 'note' }, 'The layers are the same.'),
    scrolling('before and after', el('table', { class: 'compare' }, el('caption', {}, 'before and after'),
      el('thead', {}, el('tr', {}, ['', 'before', 'after', 'change', '', ''].map((text, column) => el('th', { scope: 'col', class: column && column < 5 ? 'number' : null }, text)))),
      el('tbody', {}, rows.map(line)))));
}

// What made live memory grow, with the lines to look at. The rows add up to the growth.
function causesOfGrowth(growth) {
  if (!growth) return null;
  const line = ({ change, what, place, text }) => el('tr', {}, el('td', { class: 'number' }, signed(change)), el('th', { scope: 'row' }, what),
    el('td', {}, place ? [el('code', {}, place), text ? [' ', el('span', { class: 'muted' }, text)] : null] : '–'));
  return el('div', {}, el('p', { class: 'culprit' }, el('b', {}, `Why ${growth.value} memory grew: `), signed(growth.growth)),
    scrolling('causes of growth', el('table', { class: 'compare' }, el('caption', {}, 'causes of growth'),
      el('thead', {}, el('tr', {}, ['change', 'cause', 'line'].map((heading, column) => el('th', { scope: 'col', class: column === 0 ? 'number' : null }, heading)))),
      el('tbody', {}, growth.rows.map(line)))));
}

// The layers that differ, the largest change first.
function layerChanges(before, after) {
  const key = (model) => {
    const seen = new Map();
    return new Map(model.layers.map((layer) => {
      const times = (seen.get(layer.path) ?? 0) + 1;
      seen.set(layer.path, times);
      return [times > 1 ? `${layer.path} (${times})` : layer.path, layer];
    }));
  };
  const [a, b] = [key(before), key(after)];
  return [...new Set([...a.keys(), ...b.keys()])].map((path) => {
    const [old, now] = [a.get(path), b.get(path)];
    const features = (now?.feature_bytes ?? 0) - (old?.feature_bytes ?? 0);
    const parameters = (now?.parameter_bytes ?? 0) - (old?.parameter_bytes ?? 0);
    return { path, old, now, features, parameters, all: features + parameters };
  }).filter(({ old, now, features, parameters }) => features !== 0 || parameters !== 0 || !old || !now)
    .sort((one, other) => Math.abs(other.all) - Math.abs(one.all));
}

function layersThatDiffer(rows) {
  const [most] = rows;
  const shape = (layer) => (layer ? layer.output.join(' × ') : '–');
  const said = el('p', { class: 'culprit' }, el('b', {}, (most.now ?? most.old).path), ` ${most.old ? (most.now ? 'changed' : 'was removed') : 'is new'}: `, signed(most.all), rows.length > 1 ? (Math.abs(rows[1].all) < Math.abs(most.all) ? ', the largest change of any layer' : '; no other layer changed more') : null, '. ', sourceOf((most.now ?? most.old).source), el('span', { class: 'muted' }, ' The charts below show the moment that makes its output.'));
  return el('div', {}, said, el('details', { open: true }, el('summary', {}, `${plural(rows.length, 'layer')} ${rows.length === 1 ? 'differs' : 'differ'}`), sortable({
    caption: 'layers that differ',
    rows,
    step: 12,
    hint: 'layer1 …',
    filterBy: (row) => row.path,
    columns: [
      { label: 'layer', value: (row) => row.path, cell: (row) => [cutPath(row.path), row.old ? null : el('span', { class: 'tag' }, 'new'), row.now ? null : el('span', { class: 'tag' }, 'removed')] },
      { label: 'output before', value: (row) => shape(row.old), cell: (row) => shape(row.old), class: 'shape' },
      { label: 'output after', value: (row) => shape(row.now), cell: (row) => shape(row.now), class: 'shape' },
      { label: 'feature map', number: true, value: (row) => Math.abs(row.features), cell: (row) => signed(row.features) },
      { label: 'parameters', number: true, value: (row) => Math.abs(row.parameters), cell: (row) => signed(row.parameters) },
    ],
  }).root));
}

function theme() {
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);
  const button = el('button', { type: 'button', class: 'theme' });
  const show = () => {
    button.textContent = dark() ? '☀ light' : '☾ dark';
    button.setAttribute('aria-label', `show the ${dark() ? 'light' : 'dark'} theme`);
    for (const { chart } of views) chart.repaint();
  };
  button.addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    show();
  });
  for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', show);
  show();
  return button;
}

function start() {
  document.body.append(probe);
  const bar = el('div', { class: 'top' }, el('span', { class: 'brand' }, el('i', { style: { background: `linear-gradient(to top, ${CATEGORY.get('parameter').color} 0 34%, ${CATEGORY.get('activation').color} 34% 72%, ${CATEGORY.get('activation_gradient').color} 72%)` } }), 'cargo-vram'), el('span', { class: 'spacer' }));
  host.append(bar);
  const open = (model, highest, shared) => {
    const opened = view(model, highest, shared);
    views.push(opened);
    return opened;
  };
  if (page.compare && models.length === 2) {
    const highest = Math.max(...models.map(highestOf));
    const layers = layerChanges(models[0], models[1]);
    const shared = {
      extent: Math.max(...models.map((model) => model.line.samples)),
      changed: layers.length ? (layers[0].now ?? layers[0].old).path : undefined,
      // Both charts show the same range of samples.
      onview: (from, to) => views.forEach(({ chart }) => chart.view(from, to, false)),
    };
    host.append(comparison(models[0], models[1], layers));
    host.append(el('div', { class: 'sides' }, models.map((model) => open(model, () => highest, shared).root)));
    for (const row of host.querySelectorAll('.layers .changed')) row.closest('.scroll').scrollTop += row.getBoundingClientRect().top - row.closest('.scroll').getBoundingClientRect().top - 80;
  } else if (models.length > 0) {
    const panels = models.map((model, at) => el('div', { role: models.length > 1 ? 'tabpanel' : null, id: `model-${at}`, hidden: at > 0, 'aria-labelledby': models.length > 1 ? `tab-${at}` : null }));
    const opened = [];
    const choose = (wanted) => {
      panels.forEach((panel, at) => {
        panel.hidden = at !== wanted;
      });
      tabs.forEach((tab, at) => {
        tab.setAttribute('aria-selected', String(at === wanted));
        tab.tabIndex = at === wanted ? 0 : -1;
      });
      if (opened[wanted]) return;
      opened[wanted] = true;
      const highest = highestOf(models[wanted]);
      panels[wanted].append(open(models[wanted], () => highest).root);
    };
    const tabs = models.length < 2 ? [] : models.map((model, at) => el('button', {
      type: 'button',
      role: 'tab',
      id: `tab-${at}`,
      'aria-controls': `model-${at}`,
      onclick: () => choose(at),
      onkeydown: (event) => {
        const next = { ArrowLeft: at - 1, ArrowRight: at + 1 }[event.key];
        if (next === undefined || !tabs[next]) return;
        choose(next);
        tabs[next].focus();
      },
    }, model.run.budget ?? model.run.model, el('span', { class: 'muted' }, ` ${model.name ?? model.run.gpu.id} · ${size(model.peak.live)}`)));
    if (tabs.length) host.append(el('div', { class: 'tabs', role: 'tablist', 'aria-label': 'models' }, tabs));
    host.append(...panels);
    choose(0);
  } else host.append(el('p', {}, 'This page has no models.'));
  bar.append(theme());
  document.documentElement.dataset.ready = 'yes';
}

start();

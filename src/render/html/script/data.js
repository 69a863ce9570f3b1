// Unpacks the data of the page. `pack.rs` and `data.rs` write it.

const page = JSON.parse(document.getElementById('data').textContent);
const STACK = page.categories.slice(0, page.stack);
const CATEGORY = new Map(page.categories.map((category) => [category.key, category]));
const PHASE = new Map(page.phases.map((phase) => [phase.key, phase]));

function reader(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  let at = 0;
  // By multiplication, because bit operations end at 32 bits and numbers are exact to 53.
  const number = () => {
    let value = 0;
    let scale = 1;
    let byte;
    do {
      byte = bytes[at];
      at += 1;
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const signed = () => {
    const value = number();
    const half = Math.floor(value / 2);
    return value % 2 === 1 ? -half : half;
  };
  return { number, signed, more: () => at < bytes.length };
}

function column(base64, count) {
  const entries = new Float64Array(count);
  const packed = reader(base64);
  let value = 0;
  let at = 0;
  while (packed.more()) {
    const change = at + packed.number();
    if (value !== 0) entries.fill(value, at, change);
    value += packed.signed();
    entries[change] = value;
    at = change + 1;
  }
  if (value !== 0) entries.fill(value, at);
  return entries;
}

function unpackTensors(packed) {
  const { count, texts, shapes, sources } = packed;
  const from = reader(packed.packed);
  const optional = (table) => {
    const index = from.number();
    return index === 0 ? null : table[index - 1];
  };
  const tensors = [];
  let id = 0;
  let born = 0;
  for (let index = 0; index < count; index += 1) {
    id += from.signed();
    const tensor = { index, id, shape: shapes[from.number()], dtype: texts[from.number()], bytes: from.number() };
    tensor.logical = tensor.bytes + from.signed();
    tensor.category = page.categories[from.number()];
    tensor.module = optional(texts);
    tensor.inferred = from.number() === 1;
    tensor.operation = texts[from.number()];
    tensor.source = optional(sources);
    const step = from.number();
    tensor.step = step === 0 ? null : step - 1;
    tensor.phase = page.phases[from.number()];
    born += from.signed();
    tensor.born = born;
    const died = from.number();
    tensor.died = died === 0 ? Infinity : born + died - 1;
    const shares = from.number();
    tensor.shares = shares === 0 ? null : shares - 1;
    tensors.push(tensor);
  }
  return tensors;
}

// Whether a tensor uses the memory of another tensor.
const isView = (tensor) => tensor.bytes === 0 && tensor.shares !== null;

// For each tensor, the tensor that has its memory. Takes each step once: a file may have long chains and circles.
function memoryHolders(tensors) {
  const holders = new Array(tensors.length);
  for (const first of tensors) {
    const path = [];
    let at = first;
    while (holders[at.index] === undefined) {
      holders[at.index] = at; // A circle ends here.
      path.push(at);
      if (!isView(at)) break;
      at = tensors[at.shares];
    }
    const holder = holders[at.index];
    for (const passed of path) holders[passed.index] = holder;
  }
  return holders;
}

// The first index in `[0, count)` for which `wanted` is true. It must be true for all later indices, too.
function firstIndex(count, wanted) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (wanted(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// A model with unpacked columns. `sample` is the number of a sample in the run; `index` is its position in the columns.
function unpack(model) {
  const given = model.timeline;
  const { count, samples } = given;
  const line = { count, samples, kernels: given.kernels, kernelNames: given.kernel_names };
  if (given.kept === null) {
    line.sampleAt = (index) => index;
    line.indexOf = (sample) => Math.max(0, Math.min(count - 1, sample));
  } else {
    const kept = new Float64Array(count);
    const packed = reader(given.kept);
    let sample = 0;
    for (let at = 0; at < count; at += 1) {
      sample += packed.signed();
      kept[at] = sample;
    }
    line.sampleAt = (index) => kept[index];
    // The last kept sample that is not after the wanted one.
    line.indexOf = (wanted) => Math.max(0, firstIndex(count, (at) => kept[at] > wanted) - 1);
  }
  line.series = given.series.map((base64) => column(base64, count));
  line.reserved = column(given.reserved, count);
  line.kernel = column(given.kernel, count);
  line.live = new Float64Array(count);
  for (const series of line.series) {
    for (let at = 0; at < count; at += 1) line.live[at] += series[at];
  }
  line.spans = given.borders.map(([sample, step, phase], at) => ({
    from: sample,
    to: at + 1 < given.borders.length ? given.borders[at + 1][0] : samples,
    step,
    phase: page.phases[phase],
  }));
  line.span = (sample) => line.spans[firstIndex(line.spans.length, (at) => line.spans[at].from > sample) - 1] ?? null;
  const tensors = unpackTensors(model.tensors);
  const born = tensors.slice().sort((a, b) => a.born - b.born);
  const died = tensors.filter((tensor) => tensor.died !== Infinity).sort((a, b) => a.died - b.died);
  // The tensors that were made (or freed) after the previous kept moment and up to this one.
  const between = (sorted, key, index) => {
    const after = index === 0 ? -1 : line.sampleAt(index - 1);
    const upTo = line.sampleAt(index);
    const first = firstIndex(sorted.length, (at) => sorted[at][key] > after);
    const last = firstIndex(sorted.length, (at) => sorted[at][key] > upTo);
    return sorted.slice(first, last).sort((a, b) => b.bytes - a.bytes);
  };
  line.came = (index) => between(born, 'born', index);
  line.went = (index) => between(died, 'died', index);
  // The tensor with a layer or a source line that was made last in the phase of this moment; of several, the largest.
  // `now` is true if the launch of this moment made it.
  line.madeLast = (index) => {
    if (count === 0) return null;
    const sample = line.sampleAt(index);
    const from = line.span(sample)?.from ?? 0;
    let best = null;
    for (let at = firstIndex(born.length, (each) => born[each].born > sample) - 1; at >= 0; at -= 1) {
      const tensor = born[at];
      if (tensor.born < from || (best && tensor.born < best.born)) break;
      if (!tensor.module && !tensor.source) continue;
      if (!best || tensor.bytes > best.bytes) best = tensor;
    }
    if (!best) return null;
    // A launch has two samples, and the tensors it makes exist from the first one.
    const now = best.born === sample || (best.born === sample - 1 && line.kernel[line.indexOf(best.born)] === line.kernel[index]);
    return { tensor: best, now };
  };
  const thereAt = (sample) =>
    tensors.filter((tensor) => tensor.born <= sample && sample < tensor.died).sort((a, b) => b.bytes - a.bytes);
  // The text of source lines, by file and line.
  const texts = new Map(model.lines.filter(({ text }) => text !== null).map(({ source, text }) => [`${source.file}:${source.line}`, text]));
  return { ...model, line, tensors, thereAt, texts };
}

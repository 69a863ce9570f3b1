// Draws bytes by module path as nested rectangles.

// Builds the tree of modules: `layer1.0.conv1` is in `0`, which is in `layer1`. Memory outside tensors is a leaf for
// each category.
function moduleTree(tensors, rest) {
  const root = { name: 'all', path: '', bytes: 0, parts: new Map(), leaves: [] };
  const add = (path, leaf) => {
    let node = root;
    node.bytes += leaf.bytes;
    for (const name of path) {
      if (!node.parts.has(name)) node.parts.set(name, { name, path: node.path ? `${node.path}.${name}` : name, bytes: 0, parts: new Map(), leaves: [] });
      node = node.parts.get(name);
      node.bytes += leaf.bytes;
    }
    node.leaves.push(leaf);
  };
  for (const tensor of tensors) {
    if (tensor.bytes > 0) add(tensor.module ? tensor.module.split('.').slice(0, 12) : ['no module'], { bytes: tensor.bytes, category: tensor.category, tensor });
  }
  for (const [category, bytes] of rest) if (bytes > 0) add(['no tensor'], { bytes, category, tensor: null });
  return root;
}

// Places rectangles that are as close to squares as possible, the largest first (Bruls, Huizing, van Wijk: Squarified
// Treemaps, 2000).
function squarify(entries, x, y, w, h) {
  const placed = [];
  const total = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  if (total === 0 || w <= 0 || h <= 0) return placed;
  const scale = (w * h) / total;
  let at = 0;
  while (at < entries.length) {
    const side = Math.min(w, h);
    let sum = 0;
    let end = at;
    let worst = Infinity;
    while (end < entries.length) {
      const area = entries[end].bytes * scale;
      const next = sum + area;
      const largest = entries[at].bytes * scale;
      const ratio = Math.max((side * side * largest) / (next * next), (next * next) / (side * side * area));
      if (ratio > worst) break;
      worst = ratio;
      sum = next;
      end += 1;
    }
    const thick = sum / side;
    let along = 0;
    for (; at < end; at += 1) {
      const long = (entries[at].bytes * scale) / thick;
      placed.push(w <= h ? { entry: entries[at], x: x + along, y, w: long, h: thick } : { entry: entries[at], x, y: y + along, w: thick, h: long });
      along += long;
    }
    if (w <= h) {
      y += thick;
      h -= thick;
    } else {
      x += thick;
      w -= thick;
    }
  }
  return placed;
}

function treemap({ onpoint }) {
  const box = el('div', { class: 'treemap' });
  const crumbs = el('nav', { class: 'crumbs', 'aria-label': 'module' });
  const told = el('p', { class: 'told', role: 'status' });
  const root = el('div', {}, crumbs, box, told);
  let tree = null;
  let path = [];

  function find() {
    let node = tree;
    for (const name of path) {
      if (!node.parts.has(name)) break;
      node = node.parts.get(name);
    }
    return node;
  }

  // Whether white is easier to read on a colour than black, by the relative luminance of WCAG.
  const dark = (color) => {
    const [r, g, b] = [1, 3, 5].map((at) => {
      const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return r * 0.2126 + g * 0.7152 + b * 0.0722 < 0.179;
  };

  function tell(text, tensor) {
    told.textContent = text;
    onpoint(tensor);
  }

  function draw() {
    if (!tree) return;
    const node = find();
    const names = node.path ? path : [];
    crumbs.replaceChildren(
      ...['all', ...names].map((name, depth) => el('button', {
        type: 'button',
        disabled: depth === names.length,
        onclick: () => {
          path = names.slice(0, depth);
          draw();
        },
      }, name)),
      el('span', { class: 'muted' }, `${size(node.bytes)} · ${percent(node.bytes, tree.bytes)}`),
    );
    const width = box.clientWidth || 800;
    const height = box.clientHeight || 340;
    const marks = [];
    const visit = (inner, x, y, w, h, depth, trail) => {
      const entries = [...inner.parts.values(), ...inner.leaves].sort((a, b) => b.bytes - a.bytes);
      for (const { entry, x: left, y: top, w: wide, h: tall } of squarify(entries, x, y, w, h)) {
        if (wide * tall < 3) continue;
        const rect = { x: left + 0.5, y: top + 0.5, width: Math.max(wide - 1, 0.5), height: Math.max(tall - 1, 0.5) };
        if (entry.parts) {
          const here = [...trail, entry.name];
          const text = `${entry.path}: ${size(entry.bytes)}, ${percent(entry.bytes, tree.bytes)}`;
          const open = (event) => {
            event.stopPropagation();
            path = here;
            draw();
            // The opened rectangle no longer exists, so keyboard focus moves to the first breadcrumb.
            if (event.type === 'keydown') crumbs.querySelector('button').focus();
          };
          const group = svg('g', {
            tabindex: depth < 2 ? 0 : null,
            role: 'button',
            'aria-label': text,
            onclick: open,
            onkeydown: (event) => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), open(event)),
            onfocus: () => tell(text, null),
          });
          const head = wide > 46 && tall > 34 ? 17 : 0;
          if (head || wide * tall > 80) group.append(svg('rect', { ...rect, class: `module depth${Math.min(depth, 3)}`, onpointerenter: () => tell(text, null) }));
          if (head) {
            const label = fit(entry.name, entry.bytes, wide - 9, '600 11px');
            if (label) group.append(svg('text', { x: left + 5, y: top + 12.5, class: 'modulename' }, label));
          }
          marks.push(group);
          const gap = head ? 2 : 0.5;
          if (wide > 4 && tall > 4) visit(entry, left + gap, top + head + (head ? 0 : 0.5), wide - gap * 2, tall - head - gap, depth + 1, here);
        } else {
          const { tensor, category } = entry;
          const text = tensor
            ? `${tensor.module ?? 'no module'}${tensor.source ? ` · ${tensor.source.split('\n')[0].split('/').pop()}` : ''} · ${category.label} · ${tensor.shape} ${tensor.dtype} · ${size(tensor.bytes)} · ${tensor.operation}`
            : `${category.label}: ${size(entry.bytes)}, ${category.meaning}`;
          marks.push(svg('rect', { ...rect, fill: category.color, class: 'leaf', onpointerenter: () => tell(text, tensor), onpointerleave: () => tell('', null), onclick: () => {
            if (trail.join('.') !== names.join('.')) {
              path = trail;
              draw();
            }
          } }));
          if (wide > 58 && tall > 17) {
            const label = fit(tensor ? tensor.shape : category.label, entry.bytes, wide - 8, '10.5px');
            if (label) marks.push(svg('text', { x: left + 4, y: top + 12.5, class: dark(category.color) ? 'onleaf light' : 'onleaf' }, label));
          }
        }
      }
    };
    visit(node, 0, 0, width, height, 0, names);
    box.replaceChildren(svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': `${size(node.bytes)} by module` }, marks));
  }

  // The longest label that fits into `room` pixels: name and size, the name, or a cut name.
  function fit(name, bytes, room, font) {
    const whole = `${name} · ${size(bytes)}`;
    if (textWidth(whole, font) <= room) return whole;
    if (textWidth(name, font) <= room) return name;
    for (let letters = Math.min(name.length - 1, 40); letters > 2; letters -= 1) {
      const cut = `${name.slice(0, letters)}…`;
      if (textWidth(cut, font) <= room) return cut;
    }
    return '';
  }

  new ResizeObserver(draw).observe(box);
  return {
    root,
    show(tensors, rest) {
      tree = moduleTree(tensors, rest);
      told.textContent = '';
      draw();
    },
  };
}

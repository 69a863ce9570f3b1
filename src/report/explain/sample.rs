//! An explanation made by hand: a ResNet-18 in training, played through by a small model of an allocator, so that
//! everything in it adds up.

use std::collections::BTreeMap;

use crate::bytes::Bytes;
use crate::explain::{
    Activations, Border, Category, CategoryBytes, Certainty, EXPLANATION_VERSION, Explanation, Layer, Leak, Leaking,
    Line, Moment, PhaseRow, Saving, Series, Source, Tensor, Timeline, Totals,
};
use crate::protocol::Task;
use crate::report::{Growing, Oom, Pass, Peak, Phase, Tool, sample};

const CONTEXT: u64 = 418 << 20;
const MODULES: u64 = 32 << 20;
const PAGE: u64 = 96 << 20;

/// A layer of the model.
struct Plan {
    path: String,
    inferred: bool,
    kind: &'static str,
    output: Vec<u64>,
    learnable: Vec<Vec<u64>>,
    buffers: Vec<Vec<u64>>,
    shares: bool,
    line: u32,
    function: &'static str,
}

fn elements(shape: &[u64]) -> u64 {
    shape.iter().product()
}

fn resnet(batch: u64, size: u64) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut add =
        |path: &str, kind: &'static str, output: [u64; 4], learnable: Vec<Vec<u64>>, line: u32, stem: bool| {
            let activation = kind == "Relu" || kind == "add";
            let buffers = match kind {
                "BatchNorm" => vec![vec![output[1]], vec![output[1]]],
                _ => Vec::new(),
            };
            plans.push(Plan {
                path: path.to_owned(),
                inferred: activation,
                kind,
                output: output.to_vec(),
                learnable,
                buffers,
                shares: kind == "Relu",
                line,
                function: if stem {
                    "resnet::ResNet<B>::forward"
                } else {
                    "resnet::Block<B>::forward"
                },
            });
        };
    let norm = |width: u64| vec![vec![width], vec![width]];
    let mut at = size / 2;
    add(
        "conv1",
        "Conv2d",
        [batch, 64, at, at],
        vec![vec![64, 3, 7, 7]],
        101,
        true,
    );
    add("bn1", "BatchNorm", [batch, 64, at, at], norm(64), 102, true);
    add("relu", "Relu", [batch, 64, at, at], Vec::new(), 103, true);
    at /= 2;
    add("maxpool", "MaxPool2d", [batch, 64, at, at], Vec::new(), 104, true);
    let mut before = 64;
    for (layer, width) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let name = |what: &str| format!("layer{}.{block}.{what}", layer + 1);
            let down = block == 0 && layer > 0;
            if down {
                at /= 2;
            }
            let output = [batch, width, at, at];
            add(
                &name("conv1"),
                "Conv2d",
                output,
                vec![vec![width, before, 3, 3]],
                51,
                false,
            );
            add(&name("bn1"), "BatchNorm", output, norm(width), 52, false);
            add(&name("relu"), "Relu", output, Vec::new(), 53, false);
            add(
                &name("conv2"),
                "Conv2d",
                output,
                vec![vec![width, width, 3, 3]],
                54,
                false,
            );
            add(&name("bn2"), "BatchNorm", output, norm(width), 55, false);
            if down {
                add(
                    &name("downsample.conv"),
                    "Conv2d",
                    output,
                    vec![vec![width, before, 1, 1]],
                    57,
                    false,
                );
                add(&name("downsample.bn"), "BatchNorm", output, norm(width), 58, false);
            }
            add(&name("add"), "add", output, Vec::new(), 60, false);
            before = width;
        }
    }
    add(
        "avgpool",
        "AdaptiveAvgPool2d",
        [batch, 512, 1, 1],
        Vec::new(),
        109,
        true,
    );
    add(
        "fc",
        "Linear",
        [batch, 1000, 1, 1],
        vec![vec![512, 1000], vec![1000]],
        111,
        true,
    );
    if let Some(fc) = plans.last_mut() {
        fc.output = vec![batch, 1000];
    }
    plans
}

/// Plays the allocator.
#[derive(Default)]
struct Play {
    tensors: Vec<Tensor>,
    there: Vec<u32>,
    timeline: Timeline,
    reserved: u64,
    phases: Vec<PhaseRow>,
    lines: Vec<Line>,
    now: Option<(Option<u32>, Phase)>,
    live_before: u64,
    reserved_before: u64,
    live_peak: u64,
    reserved_peak: u64,
    peak: (u64, u32, Vec<u32>),
}

impl Play {
    fn live(&self) -> u64 {
        self.there.iter().map(|at| self.tensors[*at as usize].bytes.0).sum()
    }

    fn begin(&mut self, step: Option<u32>, phase: Phase) {
        self.end(false);
        self.now = Some((step, phase));
        let sample = self.timeline.live.len() as u32;
        self.timeline.borders.push(Border { sample, step, phase });
        self.live_peak = self.live();
        self.reserved_peak = self.reserved;
    }

    fn end(&mut self, failed: bool) {
        let Some((step, phase)) = self.now.take() else { return };
        let live = self.live();
        self.phases.push(PhaseRow {
            pass: Pass::Traced,
            step,
            phase,
            live_end: Some(Bytes(live)),
            live_peak: Some(Bytes(self.live_peak.max(live))),
            live_change: Some(live as i64 - self.live_before as i64),
            reserved_end: Bytes(self.reserved),
            reserved_peak: Bytes(self.reserved_peak.max(self.reserved)),
            reserved_change: self.reserved as i64 - self.reserved_before as i64,
            failed,
        });
        self.live_before = live;
        self.reserved_before = self.reserved;
    }

    fn make(
        &mut self,
        shape: &[u64],
        category: Category,
        module: Option<&Plan>,
        operation: &str,
        source: Source,
    ) -> u32 {
        let logical = elements(shape) * 4;
        let (step, phase) = self.now.unwrap_or((None, Phase::Model));
        let at = self.tensors.len() as u32;
        self.tensors.push(Tensor {
            id: u64::from(at) + 7,
            shape: shape.to_vec(),
            dtype: "f32".to_owned(),
            // Rows are padded.
            bytes: Bytes(logical.div_ceil(512) * 512),
            logical: Bytes(logical),
            category,
            module: module.map(|plan| plan.path.clone()),
            inferred: module.is_some_and(|plan| plan.inferred),
            operation: operation.to_owned(),
            source: Some(source),
            step,
            phase,
            born: self.timeline.live.len() as u32,
            died: None,
            shares: None,
        });
        self.there.push(at);
        at
    }

    fn free(&mut self, tensor: u32) {
        self.there.retain(|at| *at != tensor);
        self.tensors[tensor as usize].died = Some(self.timeline.live.len() as u32);
    }

    fn sample(&mut self, kernel: &str) {
        let live = self.live();
        self.reserved = self.reserved.max((live + live / 20).div_ceil(PAGE) * PAGE);
        self.live_peak = self.live_peak.max(live);
        self.reserved_peak = self.reserved_peak.max(self.reserved);
        if live > self.peak.0 {
            self.peak = (live, self.timeline.live.len() as u32, self.there.clone());
        }
        let timeline = &mut self.timeline;
        let known = timeline.kernels.iter().position(|name| name == kernel);
        let kernel = known.unwrap_or_else(|| {
            timeline.kernels.push(kernel.to_owned());
            timeline.kernels.len() - 1
        });
        timeline.live.push(Bytes(live));
        timeline.reserved.push(Bytes(self.reserved));
        timeline.kernel.push(kernel as u32);
        let held = categories(&self.tensors, &self.there);
        if timeline.categories.is_empty() {
            let live = Category::ALL.into_iter().take(10);
            timeline.categories = live
                .map(|category| Series {
                    category,
                    bytes: Vec::new(),
                })
                .collect();
        }
        for series in &mut timeline.categories {
            series
                .bytes
                .push(held.get(&series.category).copied().unwrap_or_default());
        }
    }

    /// A launch that makes some tensors and is done with others.
    fn launch(&mut self, kernel: &str, gone: &[u32]) {
        self.sample(kernel);
        for tensor in gone {
            self.free(*tensor);
        }
        self.sample(kernel);
    }
}

fn categories(tensors: &[Tensor], there: &[u32]) -> BTreeMap<Category, Bytes> {
    let mut held = BTreeMap::new();
    for tensor in there.iter().map(|at| &tensors[*at as usize]) {
        *held.entry(tensor.category).or_insert(Bytes(0)) += tensor.logical;
        *held.entry(Category::Alignment).or_insert(Bytes(0)) += tensor.bytes - tensor.logical;
    }
    held
}

fn source(line: u32, function: &str) -> Source {
    let file = if function.starts_with("resnet") {
        "src/resnet.rs"
    } else {
        "benches/vram.rs"
    };
    Source {
        file: file.to_owned(),
        line,
        function: function.to_owned(),
    }
}

/// What the lines of the sample's code say.
pub(super) fn source_line(file: &str, line: u32) -> Option<String> {
    let text = match (file, line) {
        ("src/resnet.rs", 51) => "\t\tlet out = self.conv1.forward(input.clone());",
        ("src/resnet.rs", 52) => "        let out = self.bn1.forward(out);",
        ("src/resnet.rs", 101) => "        let out = self.conv1.forward(input);",
        ("src/resnet.rs", 102) => "        let out = self.bn1.forward(out);",
        ("src/resnet.rs", 111) => "        self.fc.forward(out)",
        ("benches/vram.rs", 31) => "    let grads = loss.backward();",
        _ => return None,
    };
    Some(text.to_owned())
}

/// ResNet-18 in training on a card of 24 GiB.
pub(super) fn resnet18() -> Explanation {
    trained(32, 224, 3, None)
}

/// The same with 6,000 images, which dies in the second step's backward phase.
pub(super) fn out_of_memory() -> Explanation {
    let mut explanation = trained(256, 224, 2, Some(31));
    explanation.partial = Some("the model ran out of memory in step 1, backward; the timeline ends there".to_owned());
    explanation.run.oom = Some(Oom {
        pass: Pass::Traced,
        card: None,
        step: Some(1),
        phase: Some(Phase::Backward),
        kernel: Some("conv2d_weight_backward_f32".to_owned()),
        requested: Some(Bytes(3 << 30)),
        function: None,
        reserved: Bytes(21 << 30),
        live: None,
        available: Bytes(2 << 30),
        tensor: None,
    });
    explanation
}

/// The same that keeps its losses.
pub(super) fn leaking() -> Explanation {
    let mut explanation = resnet18();
    let kept: Vec<u32> = (0..explanation.tensors.len() as u32)
        .filter(|at| {
            explanation.tensors[*at as usize].operation == "conv2d" && explanation.tensors[*at as usize].step.is_some()
        })
        .take(24)
        .collect();
    let steps = (0..40_u64)
        .map(|step| Bytes((1 << 30) + step * (12 << 20) + (step % 3) * 4096))
        .collect();
    explanation.leak = Leaking::Yes(Leak {
        growing: Growing {
            card: None,
            steps,
            per_step: Bytes(12 << 20),
            left: Bytes(38 * (12 << 20)),
            is_sure: true,
        },
        tensors: kept,
    });
    explanation
}

fn trained(batch: u64, size: u64, steps: u32, fails_at: Option<usize>) -> Explanation {
    let plans = resnet(batch, size);
    let mut play = Play::default();
    let main = |line| source(line, "vram::resnet18");
    play.begin(None, Phase::Model);
    let mut parameters = Vec::new();
    for plan in &plans {
        for shape in &plan.learnable {
            parameters.push((
                shape.clone(),
                play.make(shape, Category::Parameter, Some(plan), "random_normal", main(12)),
            ));
            play.launch("random_normal_f32", &[]);
        }
        for shape in &plan.buffers {
            play.make(shape, Category::Buffer, Some(plan), "zeros", main(12));
            play.launch("full_f32", &[]);
        }
    }
    let mut state_is_made = false;
    'steps: for step in 0..steps {
        play.begin(Some(step), Phase::Batch);
        let images = play.make(&[batch, 3, size, size], Category::Input, None, "from_data", main(24));
        play.launch("cast_f32", &[]);
        let targets = play.make(&[batch], Category::Input, None, "from_data", main(25));
        play.launch("cast_i32", &[]);
        play.begin(Some(step), Phase::Forward);
        let mut outputs: Vec<Option<u32>> = Vec::new();
        for plan in &plans {
            if plan.shares {
                outputs.push(None);
                continue;
            }
            let before = play.live();
            let operation = match plan.kind {
                "Conv2d" => "conv2d",
                "BatchNorm" => "batch_norm",
                "MaxPool2d" => "max_pool2d",
                "Linear" => "matmul",
                _ => "add",
            };
            let here = source(plan.line, plan.function);
            let output = play.make(&plan.output, Category::Activation, Some(plan), operation, here.clone());
            let workspace = (plan.kind == "Conv2d").then(|| {
                let shape: Vec<u64> = plan.output.iter().map(|extent| extent / 2 + 1).collect();
                play.make(&shape, Category::Workspace, Some(plan), "im2col", here.clone())
            });
            play.launch(&format!("{operation}_f32"), workspace.as_slice());
            outputs.push(Some(output));
            if step == 1 {
                let mut came = vec![output];
                came.extend(workspace);
                let live = play.live();
                play.lines.push(Line {
                    source: here,
                    callers: Vec::new(),
                    step: Some(step),
                    phase: Phase::Forward,
                    live: Bytes(live),
                    change: live as i64 - before as i64,
                    came,
                    went: workspace.into_iter().collect(),
                });
            }
        }
        play.begin(Some(step), Phase::Backward);
        let before = play.live();
        let (mut came, mut went) = (Vec::new(), Vec::new());
        let mut gradients = Vec::new();
        let mut flowing: Option<u32> = None;
        for (at, (plan, output)) in plans.iter().zip(&outputs).enumerate().rev() {
            let gradient = play.make(
                &plan.output,
                Category::ActivationGradient,
                Some(plan),
                "backward",
                main(31),
            );
            let mut gone: Vec<u32> = flowing.into_iter().chain(*output).collect();
            for shape in &plan.learnable {
                gradients.push(play.make(shape, Category::Gradient, Some(plan), "weight_backward", main(31)));
            }
            if fails_at.is_some_and(|fails| step + 1 == steps && plans.len() - at > fails) {
                play.sample("conv2d_weight_backward_f32");
                play.end(true);
                break 'steps;
            }
            if at == 0 {
                gone.push(gradient);
            }
            play.launch(&format!("{}_backward_f32", plan.kind.to_lowercase()), &gone);
            came.push(gradient);
            went.extend(gone);
            flowing = Some(gradient);
        }
        if step == 1 {
            let live = play.live();
            came.extend(&gradients);
            let line = Line {
                source: main(31),
                callers: Vec::new(),
                step: Some(step),
                phase: Phase::Backward,
                live: Bytes(live),
                change: live as i64 - before as i64,
                came,
                went,
            };
            play.lines.push(line);
        }
        play.begin(Some(step), Phase::Optimizer);
        for (at, (shape, _)) in parameters.iter().enumerate() {
            if !state_is_made {
                for moment in ["moment_1", "moment_2"] {
                    play.make(shape, Category::OptimizerState, None, moment, main(33));
                }
            }
            let gradient = gradients[gradients.len() - 1 - at];
            play.launch("adam_f32", &[gradient]);
        }
        state_is_made = true;
        play.launch("drop", &[images, targets]);
    }
    play.end(false);
    document(play, &plans, batch, size)
}

fn document(play: Play, plans: &[Plan], batch: u64, size: u64) -> Explanation {
    let layers = layers(plans, batch, size);
    let mut run = sample::run("resnet18", "l4");
    run.package = "zoo".to_owned();
    run.task = Some(Task::Train);
    run.inputs = [("batch_size".to_owned(), batch), ("image_size".to_owned(), size)].into();
    run.gpu.name = "NVIDIA L4".to_owned();
    run.gpu.total_bytes = Bytes(23_034 << 20);
    run.gpu.available_bytes = Bytes((23_034 - 450) << 20);
    run.assumptions = vec!["each launch takes as long as any other, so the choices of autotune are assumed".to_owned()];
    let (live, sample, mut there) = play.peak;
    there.sort_by_key(|at| std::cmp::Reverse(play.tensors[*at as usize].bytes));
    let mut held = categories(&play.tensors, &there);
    let reserved = play.timeline.reserved[sample as usize].0;
    let has_failed = play.phases.iter().any(|row| row.failed);
    let most = play.timeline.reserved.iter().max().copied().unwrap_or_default();
    run.peaks.warm = Peak {
        live: (!has_failed).then_some(Bytes(live)),
        reserved: (!has_failed).then_some(most),
        process: (!has_failed).then_some(most + Bytes(CONTEXT + MODULES)),
    };
    held.insert(Category::Fragmentation, Bytes(reserved - live));
    held.insert(Category::Context, Bytes(CONTEXT));
    held.insert(Category::Modules, Bytes(MODULES));
    let border = play
        .timeline
        .borders
        .iter()
        .rev()
        .find(|border| border.sample <= sample)
        .copied();
    let kernel = play.timeline.kernel[sample as usize];
    let peak = Moment {
        sample,
        step: border.and_then(|border| border.step),
        phase: border.map_or(Phase::Context, |border| border.phase),
        kernel: play.timeline.kernels.get(kernel as usize).cloned(),
        live: Bytes(live),
        reserved: Bytes(reserved),
        process: Bytes(reserved + CONTEXT + MODULES),
        categories: Category::ALL
            .into_iter()
            .map(|category| CategoryBytes {
                category,
                bytes: held.get(&category).copied().unwrap_or_default(),
            })
            .collect(),
        tensors: there,
    };
    let cold = play.phases.iter().map(|row| PhaseRow {
        pass: Pass::Cold,
        live_end: None,
        live_peak: None,
        live_change: None,
        reserved_end: row.reserved_end + Bytes(2 * PAGE),
        reserved_peak: row.reserved_peak + Bytes(2 * PAGE),
        failed: false,
        ..row.clone()
    });
    let phases = cold.chain(play.phases.clone()).collect();
    Explanation {
        version: EXPLANATION_VERSION,
        tool: Tool {
            name: "cargo-vram".to_owned(),
            version: "0.1.0".to_owned(),
            fingerprint: String::new(),
        },
        commit: None,
        commit_date: None,
        dirty: None,
        run,
        partial: None,
        activations: Activations::Own,
        totals: totals(&layers, batch),
        layers,
        peak,
        changed: Vec::new(),
        phases,
        tensors: play.tensors,
        timeline: play.timeline,
        lines: play.lines,
        texts: Vec::new(),
        leak: Leaking::Unknown { seen: 3, needed: 5 },
        savings: savings(live, reserved),
        assumptions: vec!["operations of one fused kernel are attributed to the last of them".to_owned()],
    }
}

fn layers(plans: &[Plan], batch: u64, size: u64) -> Vec<Layer> {
    let layer = |path: &str, kind: &str, output: &[u64]| Layer {
        path: path.to_owned(),
        inferred: false,
        kind: kind.to_owned(),
        activation: false,
        output: output.to_vec(),
        dtype: "f32".to_owned(),
        parameters: 0,
        learnable: 0,
        parameter_bytes: Bytes(0),
        feature_bytes: Bytes(elements(output) * 4),
        shares_memory: false,
        source: None,
    };
    let mut layers = vec![
        layer("images", "input", &[batch, 3, size, size]),
        layer("targets", "input", &[batch]),
    ];
    for plan in plans {
        let count = |shapes: &[Vec<u64>]| shapes.iter().map(|shape| elements(shape)).sum::<u64>();
        let (learnable, buffers) = (count(&plan.learnable), count(&plan.buffers));
        layers.push(Layer {
            inferred: plan.inferred,
            activation: plan.inferred,
            parameters: learnable + buffers,
            learnable,
            parameter_bytes: Bytes((learnable + buffers) * 4),
            shares_memory: plan.shares,
            source: Some(source(plan.line, plan.function)),
            ..layer(&plan.path, plan.kind, &plan.output)
        });
    }
    layers
}

fn totals(layers: &[Layer], batch: u64) -> Totals {
    let sum = |of: fn(&Layer) -> u64| layers.iter().map(of).sum::<u64>();
    let parameters = sum(|layer| layer.parameters);
    let learnable = sum(|layer| layer.learnable);
    let feature_bytes = sum(|layer| layer.feature_bytes.0);
    let input_bytes = sum(|layer| {
        if layer.kind == "input" {
            layer.feature_bytes.0
        } else {
            0
        }
    });
    Totals {
        batch_size: Some(batch),
        parameters,
        learnable,
        not_learnable: parameters - learnable,
        parameter_bytes: Bytes(parameters * 4),
        feature_bytes: Bytes(feature_bytes),
        input_bytes: Bytes(input_bytes),
        forward_backward_bytes: Bytes(2 * (feature_bytes - input_bytes)),
        total_bytes: Bytes(parameters * 4 + feature_bytes),
    }
}

fn savings(live: u64, reserved: u64) -> Vec<Saving> {
    let saving = |code: &str, change: &str, live: Option<u64>, reserved: Option<u64>| Saving {
        code: code.to_owned(),
        change: change.to_owned(),
        live: live.map(Bytes),
        reserved: reserved.map(Bytes),
        saved_live: None,
        saved_reserved: None,
        cost: String::new(),
        certainty: Certainty::Run,
        note: None,
    };
    vec![
        Saving {
            saved_live: Some((live / 2) as i64),
            saved_reserved: Some((reserved / 2) as i64),
            cost: "twice as many steps an epoch".to_owned(),
            ..saving(
                "smaller-batch",
                "batch_size=16 instead of 32",
                Some(live - live / 2),
                Some(reserved - reserved / 2),
            )
        },
        Saving {
            saved_live: Some(12 << 20),
            certainty: Certainty::Timeline,
            note: Some("images, 18.38 MiB, are held by `batch` in benches/vram.rs since step 1, batch".to_owned()),
            ..saving(
                "drop-inputs",
                "drop the images after forward",
                Some(live - (12 << 20)),
                None,
            )
        },
        Saving {
            saved_live: Some(-(90 << 20)),
            certainty: Certainty::Run,
            cost: "one more copy of the parameters".to_owned(),
            ..saving(
                "ema",
                "keep an average of the parameters",
                Some(live + (90 << 20)),
                None,
            )
        },
        Saving {
            saved_live: Some(0),
            saved_reserved: Some(0),
            cost: "it may converge more slowly".to_owned(),
            ..saving(
                "stateless-optimizer",
                "SGD without momentum",
                Some(live),
                Some(reserved),
            )
        },
        Saving {
            saved_live: Some(392 << 20),
            certainty: Certainty::Already,
            note: Some("Burn writes the activations over their inputs".to_owned()),
            ..saving("in-place", "activations in place", Some(live), Some(reserved))
        },
        Saving {
            certainty: Certainty::Unknown,
            cost: "a third more time".to_owned(),
            note: Some("the model does not say which of its blocks could be computed again".to_owned()),
            ..saving("checkpointing", "recompute activations in backward", None, None)
        },
    ]
}

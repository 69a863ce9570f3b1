//! A hand-made explanation for tests: the training of a ResNet-18, simulated with a simple allocator.

use std::collections::BTreeMap;

use super::*;
use crate::report::{Growing, GrowthInterval, Obtained, Oom, Pass, Peak, Phase, ProcessOverhead, Tool};

const ROW: u64 = 512;
const PAGE: u64 = 64 << 20;

/// Returns a training run with this many steps, and with this many small launches added to each phase.
pub(crate) fn resnet(steps: u32, idle_launches: u32) -> Explanation {
    Play::new(32).all(steps, idle_launches)
}

/// Returns the same training with another batch size.
pub(crate) fn resnet_of(batch: u64, steps: u32) -> Explanation {
    Play::new(batch).all(steps, 2)
}

/// Returns a training with at least 100,000 samples and 20,000 tensors.
pub(crate) fn large() -> Explanation {
    let mut explanation = resnet(110, 55);
    let count = |explanation: &Explanation| (explanation.timeline.live.len(), explanation.tensors.len());
    let (samples, tensors) = count(&explanation);
    assert!(samples >= 100_000 && tensors >= 20_000, "{:?}", count(&explanation));
    explanation.run.model = "resnet18-long".into();
    explanation
}

/// A name that tries to break out of wherever it is put.
pub(crate) const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\u{202e}\u{1b}[2J\u{0}&\"'<!--]]>\u{2028}";

/// Returns an explanation of a run that ran out of memory, in which every text is [`HOSTILE`].
pub(crate) fn hostile() -> Explanation {
    let mut it = resnet(2, 0);
    let evil = || HOSTILE.to_owned();
    it.tool.version = evil().into();
    it.commit = Some(evil().into());
    it.commit_date = Some(evil().into());
    it.partial = Some(evil().into());
    it.run.model = PlainName::escaped(&evil());
    it.run.package = PlainName::escaped(&evil());
    it.run.burn = evil().into();
    it.run.gpu.name = evil().into();
    it.run.inputs = BTreeMap::from([(PlainName::escaped(&evil()), 1)]);
    it.run.assumptions = vec![Assumption::from_document(evil(), evil())];
    it.assumptions = vec![Assumption::from_document(evil(), evil())];
    it.run.oom = Some(Oom {
        pass: Pass::Warm,
        gpu_number: None,
        step: Some(1),
        phase: Some(Phase::Forward),
        kernel: Some(evil().into()),
        requested: Some(Bytes(1 << 30)),
        function: None,
        reserved: Bytes(1 << 30),
        live: None,
        available: Bytes(1 << 20),
        tensor: None,
    });
    let source = || SourceLocation {
        file: evil().into(),
        line: 1,
        function: evil().into(),
    };
    for layer in &mut it.layers {
        layer.path = format!("{HOSTILE}.{HOSTILE}").into();
        layer.kind = evil().into();
        layer.dtype = evil().into();
        layer.source = Some(source());
    }
    for tensor in &mut it.tensors {
        tensor.module = Some(evil().into());
        tensor.operation = evil().into();
        tensor.dtype = evil().into();
        tensor.source = Some(source());
    }
    for kernel in &mut it.timeline.kernels {
        *kernel = evil().into();
    }
    it.peak.kernel = Some(evil().into());
    for line in &mut it.lines {
        line.source = source();
    }
    it.texts = vec![LineText {
        file: evil().into(),
        line: 1,
        text: evil().into(),
    }];
    for saving in &mut it.savings {
        saving.code = evil().into();
        saving.change = evil().into();
        saving.cost = evil().into();
        saving.note = Some(evil().into());
    }
    it
}

/// A convolution and its sizes.
struct Conv {
    path: String,
    from: u64,
    to: u64,
    kernel: u64,
    /// The height and width of the output.
    size: u64,
}

struct Play {
    batch: u64,
    explanation: Explanation,
    held: BTreeMap<Category, u64>,
    reserved: u64,
    step: Option<u32>,
    phase: Phase,
    parameters: Vec<(u32, String)>,
    moments: BTreeMap<String, Vec<u32>>,
    kept: Vec<u32>,
    phase_peak: u64,
}

use crate::bytes::Bytes;
use crate::untrusted::PlainName;

impl Play {
    fn new(batch: u64) -> Self {
        let run = crate::report::sample::run("resnet18", "l4");
        let explanation = Explanation {
            version: EXPLANATION_VERSION,
            tool: Tool {
                name: "cargo-vram".into(),
                version: "0.1.0".into(),
                fingerprint: "0123456789abcdef".into(),
            },
            commit: Some("0f1e2d3c4b5a".into()),
            commit_date: Some("2026-11-23T18:04:05+01:00".into()),
            dirty: Some(false),
            run,
            partial: None,
            activations: Activations::Own,
            totals: Totals {
                batch_size: Some(batch),
                parameters: 0,
                learnable: 0,
                not_learnable: 0,
                parameter_bytes: Bytes(0),
                feature_bytes: Bytes(0),
                input_bytes: Bytes(0),
                forward_backward_bytes: Bytes(0),
                total_bytes: Bytes(0),
            },
            layers: Vec::new(),
            peak: PeakMoment {
                sample: 0,
                step: None,
                phase: Phase::Context,
                kernel: None,
                live: Bytes(0),
                reserved: Bytes(0),
                process: Bytes(0),
                categories: Vec::new(),
                tensors: Vec::new(),
            },
            changed: Vec::new(),
            growth: None,
            phases: Vec::new(),
            tensors: Vec::new(),
            timeline: MemoryTimeline::default(),
            lines: Vec::new(),
            stacks: Vec::new(),
            texts: Vec::new(),
            leak: Leaking::No {
                interval: GrowthInterval::Step,
            },
            savings: Vec::new(),
            assumptions: vec![Assumption::from_document(
                "code",
                "modules of operations without parameters are inferred from their neighbours",
            )],
        };
        Self {
            batch,
            explanation,
            held: BTreeMap::new(),
            reserved: 0,
            step: None,
            phase: Phase::Model,
            parameters: Vec::new(),
            moments: BTreeMap::new(),
            kept: Vec::new(),
            phase_peak: 0,
        }
    }

    fn live(&self) -> u64 {
        self.held.values().sum()
    }

    fn look(&mut self, kernel: u32) {
        let live = self.live();
        self.reserved = self.reserved.max(live.div_ceil(PAGE) * PAGE);
        self.phase_peak = self.phase_peak.max(live);
        let timeline = &mut self.explanation.timeline;
        timeline.live.push(Bytes(live));
        timeline.reserved.push(Bytes(self.reserved));
        timeline.kernel.push(kernel);
        for series in &mut timeline.categories {
            series
                .bytes
                .push(Bytes(self.held.get(&series.category).copied().unwrap_or(0)));
        }
    }

    /// Launches a kernel that holds a workspace meanwhile.
    fn launch(&mut self, kernel: &str, workspace: u64) {
        let kernels = &mut self.explanation.timeline.kernels;
        let at = kernels.iter().position(|known| known == kernel).unwrap_or_else(|| {
            kernels.push(kernel.into());
            kernels.len() - 1
        });
        *self.held.entry(Category::Workspace).or_default() += workspace;
        self.look(at as u32);
        self.look(at as u32);
        *self.held.entry(Category::Workspace).or_default() -= workspace;
    }

    fn begin(&mut self, step: Option<u32>, phase: Phase) {
        (self.step, self.phase, self.phase_peak) = (step, phase, self.live());
        self.explanation.timeline.borders.push(Border {
            sample: self.explanation.timeline.live.len() as u32,
            step,
            phase,
        });
    }

    fn end(&mut self) {
        let before = self.explanation.phases.last();
        let (live, reserved) = (self.live() as i64, self.reserved as i64);
        let row = PhaseRow {
            pass: Pass::Traced,
            step: self.step,
            phase: self.phase,
            live_end: Some(Bytes(live as u64)),
            live_peak: Some(Bytes(self.phase_peak)),
            live_change: Some(live - before.and_then(|row| row.live_end).map_or(0, |end| end.0 as i64)),
            reserved_end: Bytes(reserved as u64),
            reserved_peak: Bytes(reserved as u64),
            reserved_change: reserved - before.map_or(0, |row| row.reserved_end.0 as i64),
            failed: false,
        };
        self.explanation.phases.push(row);
    }

    fn make(&mut self, shape: &[u64], category: Category, module: Option<&str>, operation: &str) -> u32 {
        let logical = shape.iter().product::<u64>() * 4;
        let bytes = logical.div_ceil(ROW) * ROW;
        *self.held.entry(category).or_default() += logical;
        *self.held.entry(Category::Alignment).or_default() += bytes - logical;
        let tensors = &mut self.explanation.tensors;
        tensors.push(TensorLife {
            id: tensors.len() as u64 * 3 + 7,
            shape: shape.to_vec(),
            dtype: "f32".into(),
            bytes: Bytes(bytes),
            logical: Bytes(logical),
            category,
            module: module.map(Into::into),
            inferred: operation == "relu" || operation == "add",
            operation: operation.into(),
            source: module.map(source),
            stack: None,
            step: self.step,
            phase: self.phase,
            born: self.explanation.timeline.live.len() as u32,
            died: None,
            shares: None,
        });
        tensors.len() as u32 - 1
    }

    fn free(&mut self, tensor: u32) {
        let sample = self.explanation.timeline.live.len() as u32;
        let tensor = &mut self.explanation.tensors[tensor as usize];
        assert_eq!(tensor.died, None);
        tensor.died = Some(sample);
        *self.held.entry(tensor.category).or_default() -= tensor.logical.0;
        *self.held.entry(Category::Alignment).or_default() -= tensor.bytes.0 - tensor.logical.0;
    }

    fn parameter(&mut self, path: &str, shape: &[u64], category: Category) {
        let tensor = self.make(shape, category, Some(path), "init");
        let logical = self.explanation.tensors[tensor as usize].logical;
        let totals = &mut self.explanation.totals;
        totals.parameters += logical.0 / 4;
        totals.parameter_bytes += logical;
        if category == Category::Parameter {
            totals.learnable += logical.0 / 4;
            self.parameters.push((tensor, path.to_owned()));
        } else {
            totals.not_learnable += logical.0 / 4;
        }
        self.launch("normal_f32", 0);
    }

    fn model(&mut self, convs: &[Conv]) {
        for conv in convs {
            let shape = [conv.to, conv.from, conv.kernel, conv.kernel];
            self.parameter(&conv.path, &shape, Category::Parameter);
            let norm = conv.path.replace("conv", "bn");
            for _ in 0..2 {
                self.parameter(&norm, &[conv.to], Category::Parameter);
                self.parameter(&norm, &[conv.to], Category::Buffer);
            }
        }
        self.parameter("fc", &[1000, 512], Category::Parameter);
        self.parameter("fc", &[1000], Category::Parameter);
    }

    fn layer(&mut self, path: &str, kind: &str, output: &[u64], parameters: (u64, u64), activation: bool) {
        let bytes = Bytes(output.iter().product::<u64>() * 4);
        self.explanation.totals.feature_bytes += bytes;
        self.explanation.layers.push(Layer {
            path: path.into(),
            inferred: parameters.0 == 0,
            kind: kind.into(),
            activation,
            output: output.to_vec(),
            dtype: "f32".into(),
            parameters: parameters.0,
            learnable: parameters.1,
            parameter_bytes: Bytes(parameters.0 * 4),
            feature_bytes: bytes,
            shares_memory: kind == "flatten",
            source: Some(source(path)),
        });
    }

    fn forward(&mut self, convs: &[Conv], input: u32) -> Vec<(u32, String)> {
        let first = self.step == Some(0);
        let batch = self.batch;
        if first {
            let shape = self.explanation.tensors[input as usize].shape.clone();
            self.layer("input", "input", &shape, (0, 0), false);
            self.explanation.totals.input_bytes = Bytes(shape.iter().product::<u64>() * 4);
        }
        let mut saved = Vec::new();
        for conv in convs {
            let shape = [batch, conv.to, conv.size, conv.size];
            let norm = conv.path.replace("conv", "bn");
            let workspace = batch * conv.size * conv.size * conv.from * 4;
            let out = self.make(&shape, Category::Activation, Some(&conv.path), "conv2d");
            self.launch(
                &format!("matmul_gemm_multi_row_f32<{}x{},{}>", conv.from, conv.to, conv.kernel),
                workspace.min(256 << 20),
            );
            saved.push((out, conv.path.clone()));
            let out = self.make(&shape, Category::Activation, Some(&norm), "batch_norm");
            self.launch("fuse_elemwise_mul_add_f32", 0);
            saved.push((out, norm.clone()));
            let relu = conv
                .path
                .rsplit_once('.')
                .map_or("relu".to_owned(), |(block, _)| format!("{block}.relu"));
            let out = self.make(&shape, Category::Activation, Some(&relu), "relu");
            self.launch("fuse_elemwise_relu_f32", 0);
            saved.push((out, relu.clone()));
            if first {
                let count = conv.to * conv.from * conv.kernel * conv.kernel;
                self.layer(&conv.path, "Conv2d", &shape, (count, count), false);
                self.layer(&norm, "BatchNorm", &shape, (conv.to * 4, conv.to * 2), false);
                self.layer(&relu, "Relu", &shape, (0, 0), true);
            }
        }
        let out = self.make(&[batch, 1000], Category::Activation, Some("fc"), "linear");
        self.launch("matmul_simple_f32", 1 << 20);
        saved.push((out, "fc".to_owned()));
        let out = self.make(&[1], Category::Activation, None, "cross_entropy");
        self.launch("reduce_mean_f32", 0);
        if first {
            self.layer("flatten", "flatten", &[batch, 512], (0, 0), false);
            self.layer("fc", "Linear", &[batch, 1000], (513_000, 513_000), false);
        }
        saved.push((out, "loss".to_owned()));
        saved
    }

    fn backward(&mut self, saved: Vec<(u32, String)>) -> Vec<u32> {
        let mut grad: Option<u32> = None;
        let mut gradients = Vec::new();
        for (tensor, path) in saved.into_iter().rev() {
            let shape = self.explanation.tensors[tensor as usize].shape.clone();
            let operation = self.explanation.tensors[tensor as usize].operation.clone();
            let next = self.make(
                &shape,
                Category::ActivationGradient,
                Some(&path),
                &format!("{operation}_backward"),
            );
            let bytes = self.explanation.tensors[tensor as usize].bytes.0;
            self.launch(
                &format!("{operation}_backward_f32"),
                if operation == "conv2d" { bytes / 2 } else { 0 },
            );
            let own: Vec<_> = self
                .parameters
                .iter()
                .filter(|(_, own)| *own == path)
                .cloned()
                .collect();
            if operation != "relu" {
                for (parameter, path) in own {
                    let shape = self.explanation.tensors[parameter as usize].shape.clone();
                    gradients.push(self.make(&shape, Category::Gradient, Some(&path), "weight_grad"));
                    self.launch("conv2d_weight_backward_f32", bytes / 4);
                }
            }
            if let Some(grad) = grad.replace(next) {
                self.free(grad);
            }
            self.free(tensor);
        }
        if let Some(grad) = grad {
            self.free(grad);
        }
        gradients
    }

    fn optimizer(&mut self, gradients: Vec<u32>) {
        for gradient in gradients {
            let TensorLife { shape, module, .. } = self.explanation.tensors[gradient as usize].clone();
            let path = module.unwrap();
            if self.step == Some(0) {
                let states = [(); 2].map(|()| self.make(&shape, Category::OptimizerState, Some(path.raw()), "adam"));
                self.moments
                    .insert(format!("{path}{shape:?}{gradient}"), states.to_vec());
            }
            let logical = shape.iter().product::<u64>() * 4;
            self.launch("fuse_elemwise_adam_f32", logical);
            self.free(gradient);
        }
    }

    fn all(mut self, steps: u32, idle_launches: u32) -> Explanation {
        self.explanation.timeline.categories = Category::STACK
            .into_iter()
            .filter(|category| *category != Category::Unattributed)
            .map(|category| Series {
                category,
                bytes: Vec::new(),
            })
            .collect();
        let convs = convs();
        self.begin(None, Phase::Model);
        self.model(&convs);
        self.end();
        for step in 0..steps {
            self.begin(Some(step), Phase::Batch);
            let input = self.make(&[self.batch, 3, 224, 224], Category::Input, None, "from_data");
            self.launch("copy_f32", 0);
            self.end();
            self.begin(Some(step), Phase::Forward);
            let saved = self.forward(&convs, input);
            for _ in 0..idle_launches {
                self.launch("fuse_elemwise_f32", 4096);
            }
            self.end();
            self.begin(Some(step), Phase::Backward);
            let gradients = self.backward(saved);
            for at in 0..idle_launches * 2 {
                self.launch("reduce_sum_f32", u64::from(at % 5) << 16);
            }
            self.end();
            self.begin(Some(step), Phase::Optimizer);
            self.optimizer(gradients);
            for _ in 0..idle_launches {
                self.launch("fuse_elemwise_f32", 8192);
            }
            self.free(input);
            // The program keeps a history, which is a leak.
            let kept = self.make(&[64, 1024], Category::Activation, Some("history"), "clone");
            self.launch("copy_f32", 0);
            self.kept.push(kept);
            self.end();
        }
        self.finish(steps)
    }

    fn finish(mut self, steps: u32) -> Explanation {
        let it = &mut self.explanation;
        let totals = &mut it.totals;
        totals.forward_backward_bytes = Bytes((totals.feature_bytes.0 - totals.input_bytes.0) * 2);
        totals.total_bytes = totals.feature_bytes + totals.parameter_bytes;
        let sample = (0..it.timeline.live.len())
            .rev()
            .max_by_key(|at| it.timeline.live[*at])
            .unwrap();
        let (live, reserved) = (it.timeline.live[sample], it.timeline.reserved[sample]);
        let border = it
            .timeline
            .borders
            .iter()
            .rfind(|border| border.sample as usize <= sample)
            .unwrap();
        let (context, modules) = (Bytes(312 << 20), Bytes(32 << 20));
        let mut categories: Vec<_> = Category::STACK
            .into_iter()
            .map(|category| CategoryBytes {
                category,
                bytes: it
                    .timeline
                    .categories
                    .iter()
                    .find(|series| series.category == category)
                    .map_or(Bytes(0), |series| series.bytes[sample]),
            })
            .chain(
                [
                    (Category::Fragmentation, reserved - live),
                    (Category::Context, context),
                    (Category::Modules, modules),
                ]
                .map(|(category, bytes)| CategoryBytes { category, bytes }),
            )
            .collect();
        categories.sort_by_key(|each| each.category);
        let at = sample as u32;
        let there = |tensor: &TensorLife| tensor.born <= at && tensor.died.is_none_or(|died| at < died);
        let mut tensors: Vec<u32> = (0..it.tensors.len() as u32)
            .filter(|tensor| there(&it.tensors[*tensor as usize]))
            .collect();
        tensors.sort_by_key(|tensor| std::cmp::Reverse(it.tensors[*tensor as usize].bytes));
        it.peak = PeakMoment {
            sample: at,
            step: border.step,
            phase: border.phase,
            kernel: Some(it.timeline.kernels[it.timeline.kernel[sample] as usize].clone()),
            live,
            reserved,
            process: reserved + context + modules,
            categories,
            tensors,
        };
        let peak = |more: u64| Peak {
            live: Some(live),
            reserved: Some(Bytes(reserved.0 + more)),
            process: Some(Bytes(reserved.0 + more) + context + modules),
        };
        it.run.peaks.warm = peak(0);
        it.run.peaks.cold = peak(640 << 20);
        it.run.inputs = BTreeMap::from([("batch_size".into(), self.batch), ("image".into(), 224)]);
        it.run.task = Some(crate::protocol::Task::Train);
        it.run.gpu.name = "NVIDIA L4".into();
        it.run.assumptions = vec![
            Assumption::from_document("code", "32 MiB for loaded kernels"),
            Assumption::from_document("code", "autotune's choices: 41 assumed"),
        ];
        let ends: Vec<_> = it
            .phases
            .iter()
            .filter(|row| row.phase == Phase::Optimizer)
            .filter_map(|row| row.live_end)
            .collect();
        it.leak = if steps > 2 {
            Leaking::Yes(Leak {
                growing: Growing {
                    interval: GrowthInterval::Step,
                    first_step: 0,
                    gpu_number: None,
                    left: Bytes((ends.len() as u64 - 2) * 64 * 1024 * 4),
                    steps: ends,
                    per_step: Bytes(64 * 1024 * 4),
                    is_sure: true,
                },
                tensors: self.kept.clone(),
                keepers: vec![TensorKeeper {
                    file: "src/train.rs".into(),
                    line: 91,
                    text: "self.kept.push(hidden); // & <b>".into(),
                    tensors: self.kept.clone(),
                }],
            })
        } else {
            Leaking::Unknown {
                interval: GrowthInterval::Step,
                seen: steps,
                needed: 5,
            }
        };
        it.savings = savings(live, reserved);
        it.lines = it
            .phases
            .iter()
            .enumerate()
            .map(|(at, row)| SourceLineMemory {
                source: source(&format!("line{at}.x")),
                callers: Vec::new(),
                step: row.step,
                phase: row.phase,
                live: row.live_end.unwrap(),
                change: row.live_change.unwrap(),
                came: vec![at as u32],
                went: vec![],
            })
            .take(24)
            .collect();
        for line in it.lines.iter_mut().filter(|line| line.phase == Phase::Batch) {
            line.source.file = "src/generated.rs".into();
        }
        it.texts = it
            .lines
            .iter()
            .filter(|line| line.source.file != "src/generated.rs")
            .map(|line| LineText {
                file: line.source.file.clone(),
                line: line.source.line,
                text: format!("let x = self.block{}.forward(x); // & <b>", line.source.line).into(),
            })
            .collect();
        it.texts.sort();
        it.texts.dedup();
        let cold: Vec<_> = it
            .phases
            .iter()
            .map(|row| PhaseRow {
                pass: Pass::Cold,
                live_end: None,
                live_peak: None,
                live_change: None,
                reserved_peak: row.reserved_peak + Bytes(640 << 20),
                reserved_end: row.reserved_end + Bytes(640 << 20),
                ..row.clone()
            })
            .collect();
        it.phases.splice(0..0, cold);
        self.explanation
    }
}

fn savings(live: Bytes, reserved: Bytes) -> Vec<Saving> {
    let saving = |code: &str, change: &str, part: u64, cost: &str, certainty| Saving {
        code: code.into(),
        change: change.into(),
        live: Some(Bytes(live.0 - live.0 / part)),
        reserved: (certainty == Certainty::Run).then_some(Bytes(reserved.0 - reserved.0 / part)),
        saved_live: Some((live.0 / part) as i64),
        saved_reserved: (certainty == Certainty::Run).then_some((reserved.0 / part) as i64),
        cost: cost.into(),
        certainty,
        note: None,
    };
    vec![
        saving(
            "smaller-batch",
            "batch_size 16 instead of 32",
            2,
            "twice the steps",
            Certainty::Run,
        ),
        saving(
            "drop-earlier",
            "drop `images` before backward",
            40,
            "none",
            Certainty::Timeline,
        ),
        Saving {
            note: Some("the model could not be run with it: batch_size is fixed".into()),
            live: None,
            saved_live: None,
            ..saving("checkpoint", "gradient checkpointing", 3, "time", Certainty::Unknown)
        },
    ]
}

fn source(path: &str) -> SourceLocation {
    let line = path
        .bytes()
        .fold(17, |sum: u32, byte| (sum * 31 + u32::from(byte)) % 240);
    SourceLocation {
        file: "crates/vision/classification/models/src/resnet.rs".into(),
        line: line + 1,
        function: "models::resnet::ResNet<B>::forward".into(),
    }
}

fn convs() -> Vec<Conv> {
    let conv = |path: &str, from, to, kernel, size| Conv {
        path: path.to_owned(),
        from,
        to,
        kernel,
        size,
    };
    let mut all = vec![conv("conv1", 3, 64, 7, 112)];
    let mut from = 64;
    for (stage, (to, size)) in [(64, 56), (128, 28), (256, 14), (512, 7)].into_iter().enumerate() {
        for block in 0..2 {
            let path = format!("layer{}.{block}", stage + 1);
            all.push(conv(&format!("{path}.conv1"), from, to, 3, size));
            all.push(conv(&format!("{path}.conv2"), to, to, 3, size));
            if from != to {
                all.push(conv(&format!("{path}.downsample.conv"), from, to, 1, size));
            }
            from = to;
        }
    }
    all
}

/// Returns an explanation without the parts that must be requested, for a GPU with an assumed context, and with a view
/// at the peak.
fn plain() -> Explanation {
    let mut it = resnet(2, 0);
    it.lines.clear();
    it.texts.clear();
    it.savings.clear();
    let why = "2 KiB for each of 58 × 1536 resident threads".to_owned();
    it.run.assumptions = vec![Assumption::from_document(
        "gpu-value",
        format!("the CUDA context of `l4` is assumed to be 174 MiB: {why}"),
    )];
    let outside = |obtained, source| {
        Some(ProcessOverhead {
            bytes: Bytes(174 << 20),
            obtained,
            source,
        })
    };
    it.run.gpu.context = outside(Obtained::Assumed, why.into());
    it.run.gpu.modules = outside(Obtained::Measured, "on another GPU".into());
    let shared = it.peak.tensors[0];
    let view = TensorLife {
        bytes: Bytes(0),
        operation: "transpose".into(),
        shares: Some(shared),
        ..it.tensors[shared as usize].clone()
    };
    it.peak.tensors.push(it.tensors.len() as u32);
    it.tensors.push(view);
    it
}

/// Returns a training that runs out of memory, and ends, in the backward phase of its second step.
pub(crate) fn out_of_memory() -> Explanation {
    let mut it = resnet(2, 0);
    let end = it.timeline.borders.pop().unwrap().sample;
    assert!(it.peak.sample < end);
    let timeline = &mut it.timeline;
    timeline.live.truncate(end as usize);
    timeline.reserved.truncate(end as usize);
    timeline.kernel.truncate(end as usize);
    for series in &mut timeline.categories {
        series.bytes.truncate(end as usize);
    }
    it.tensors
        .iter_mut()
        .for_each(|tensor| tensor.died = tensor.died.filter(|died| *died < end));
    it.phases.pop();
    it.phases.last_mut().unwrap().failed = true;
    it.run.peaks.warm = Peak::default();
    it.partial = Some("the model ran out of memory in step 1, backward; the timeline ends there".into());
    it.run.oom = Some(Oom {
        pass: Pass::Traced,
        gpu_number: None,
        step: Some(1),
        phase: Some(Phase::Backward),
        kernel: Some("conv2d_weight_backward_f32".into()),
        requested: Some(Bytes(3 << 30)),
        function: None,
        reserved: Bytes(21 << 30),
        live: None,
        available: Bytes(2 << 30),
        tensor: None,
    });
    it
}

/// Writes the explanations for the browser tests, as `tests/browser/run` requests them.
#[test]
#[ignore = "writes files, for tests/browser/run"]
fn write_samples() {
    let folder = std::path::PathBuf::from(std::env::var_os("VRAM_SAMPLES").unwrap());
    let write = |name: &str, explanation: &Explanation| {
        explanation.check().unwrap();
        std::fs::write(folder.join(name), serde_json::to_string(explanation).unwrap()).unwrap();
    };
    write("resnet18.json", &resnet(3, 4));
    write("before.json", &resnet(3, 4));
    write("after.json", &resnet_of(16, 3));
    write("large.json", &large());
    write("plain.json", &plain());
    write("hostile.json", &hostile());
    let mut died = resnet(2, 0);
    died.partial = Some("the model ran out of memory in step 1".into());
    died.run.model = "resnet18-died".into();
    died.run.oom = hostile().run.oom.map(|oom| Oom {
        kernel: Some("matmul_f32".into()),
        ..oom
    });
    write("died.json", &died);
    let mut empty = resnet(1, 0);
    empty.timeline = MemoryTimeline::default();
    empty.tensors.clear();
    empty.layers.clear();
    empty.phases.clear();
    empty.lines.clear();
    empty.peak = PeakMoment {
        sample: 0,
        live: Bytes(0),
        categories: Vec::new(),
        tensors: Vec::new(),
        ..empty.peak
    };
    empty.partial = Some("the model panicked before its first tensor".into());
    write("empty.json", &empty);
}

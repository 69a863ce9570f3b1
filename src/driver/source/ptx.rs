//! PTX as text: what NVRTC here writes, and what a module is read from. Real PTX reads as well.

/// An architecture as compilers spell it: `sm_90a` is `(9, 0)` and `Specific`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) capability: (u32, u32),
    pub(crate) kind: TargetKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetKind {
    /// Runs on this architecture and on later ones.
    Portable,
    /// `f`: runs on later ones of the same major number only.
    Family,
    /// `a`: runs on this one only.
    Specific,
}

impl Target {
    /// From the part behind `sm_` or `compute_`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (digits, kind) = match text.as_bytes().last()? {
            b'a' => (&text[..text.len() - 1], TargetKind::Specific),
            b'f' => (&text[..text.len() - 1], TargetKind::Family),
            _ => (text, TargetKind::Portable),
        };
        let number: u32 = digits.parse().ok()?;
        Some(Self {
            capability: (number / 10, number % 10),
            kind,
        })
    }

    pub(crate) fn runs_on(self, card: (u32, u32)) -> bool {
        match self.kind {
            TargetKind::Portable => card >= self.capability,
            TargetKind::Family => card.0 == self.capability.0 && card >= self.capability,
            TargetKind::Specific => card == self.capability,
        }
    }
}

/// A kernel, as far as a launch can tell.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Bytes of shared memory that it declares itself.
    pub(crate) static_shared: u64,
    /// From its launch bounds.
    pub(crate) max_threads: Option<u32>,
    /// What each parameter points to; nothing where it is no pointer, or to a type that is not known.
    pub(crate) parameters: Vec<Option<Element>>,
}

/// The type of the numbers that a pointer leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    F16,
    Bf16,
    F32,
    F64,
    /// A whole number or a truth value, of so many bytes.
    Whole(u8),
}

impl Element {
    /// From the name of a type in CUDA C++; of a vector, that of its parts: `float_4`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let bits = |name: &str| -> Option<u8> {
            match name.split('_').next()? {
                "8" => Some(1),
                "16" => Some(2),
                "" | "32" => Some(4),
                "64" => Some(8),
                _ => None,
            }
        };
        if name.starts_with("__half") || name.starts_with("half") {
            return Some(Self::F16);
        }
        if name.starts_with("__nv_bfloat16") {
            return Some(Self::Bf16);
        }
        if name.starts_with("float") {
            return Some(Self::F32);
        }
        if name.starts_with("double") {
            return Some(Self::F64);
        }
        if name.starts_with("bool") || name.starts_with("char") {
            return Some(Self::Whole(1));
        }
        let whole = name.strip_prefix("uint").or(name.strip_prefix("int"))?;
        bits(whole).map(Self::Whole)
    }

    /// As [`Element::parse`] reads it.
    fn name(self) -> &'static str {
        match self {
            Self::F16 => "half",
            Self::Bf16 => "__nv_bfloat16",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::Whole(1) => "int8",
            Self::Whole(2) => "int16",
            Self::Whole(8) => "int64",
            Self::Whole(_) => "int32",
        }
    }
}

pub(crate) struct Image {
    /// The PTX version, as (8, 9).
    pub(crate) version: (u32, u32),
    pub(crate) target: Target,
    /// Compiled for exactly one architecture, as a cubin is.
    pub(crate) binary: bool,
    pub(crate) entries: Vec<Entry>,
}

const BINARY: &str = "// cubin";
/// Behind a kernel's name in what NVRTC here writes: a word for each of its parameters.
const PARAMETERS: &str = "// parameters:";

/// Writes what a module can be loaded from; there is no code in it.
pub(crate) fn write(version: (u32, u32), target: &str, entries: &[Entry], binary: bool) -> String {
    use std::fmt::Write;

    let mut text = String::from("//\n// Written by a virtual GPU: no kernel has a body.\n//\n");
    if binary {
        text.push_str(BINARY);
        text.push('\n');
    }
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        ".version {}.{}\n.target {target}\n.address_size 64\n",
        version.0, version.1
    );
    for Entry {
        name,
        static_shared,
        max_threads,
        parameters,
    } in entries
    {
        let _ = write!(text, "\n.visible .entry {name}() {PARAMETERS}");
        for parameter in parameters {
            let _ = write!(text, " {}", parameter.map_or("-", Element::name));
        }
        text.push('\n');
        if let Some(threads) = max_threads {
            let _ = writeln!(text, ".maxntid {threads}, 1, 1");
        }
        text.push_str("{\n");
        if *static_shared > 0 {
            let _ = writeln!(text, "\t.shared .align 16 .b8 shared[{static_shared}];");
        }
        text.push_str("\tret;\n}\n");
    }
    text
}

/// How many kernels a text has; asks nothing else of it.
pub(crate) fn count_entries(text: &str) -> usize {
    text.lines()
        .filter(|line| {
            line.split("//")
                .next()
                .unwrap_or_default()
                .contains(".entry")
        })
        .count()
}

pub(crate) fn parse(text: &str) -> Option<Image> {
    let mut version = None;
    let mut target = None;
    let mut entries: Vec<Entry> = Vec::new();
    let mut module_shared = 0;
    let mut depth = 0_usize;
    let mut binary = false;
    for line in text.lines() {
        binary |= line == BINARY;
        let parameters = line.split_once(PARAMETERS).map(|(_, types)| types);
        let line = line.split("//").next().unwrap_or_default().trim();
        if let Some(number) = line.strip_prefix(".version") {
            let (major, minor) = number.trim().split_once('.')?;
            version = Some((major.parse().ok()?, minor.parse().ok()?));
        } else if let Some(name) = line.strip_prefix(".target") {
            let name = name.split(',').next()?.trim();
            target = Target::parse(name.strip_prefix("sm_")?);
        } else if let Some((_, rest)) = line.split_once(".entry") {
            let name = rest.trim().split(['(', ' ', '\t', '{']).next()?;
            entries.push(Entry {
                name: name.to_owned(),
                parameters: parameters
                    .unwrap_or_default()
                    .split_whitespace()
                    .map(Element::parse)
                    .collect(),
                ..Entry::default()
            });
        } else if let Some(threads) = line.strip_prefix(".maxntid") {
            let mut product = threads
                .split(',')
                .map(|part| part.trim().parse::<u32>().ok());
            let product = product.try_fold(1, |all: u32, one| all.checked_mul(one?));
            entries.last_mut()?.max_threads = product;
        } else if line.contains(".shared") && !line.starts_with(".extern") && line.ends_with(';') {
            let bytes = shared_bytes(line).unwrap_or(0);
            match entries.last_mut().filter(|_| depth > 0) {
                Some(entry) => entry.static_shared += bytes,
                None => module_shared += bytes,
            }
        }
        depth += line.matches('{').count();
        depth = depth.saturating_sub(line.matches('}').count());
    }
    for entry in &mut entries {
        entry.static_shared += module_shared;
    }
    Some(Image {
        version: version?,
        target: target?,
        binary,
        entries,
    })
}

/// The bytes of a declaration like `.shared .align 16 .b8 name[4096];`. Instructions such as
/// `ld.shared.f32` are none.
fn shared_bytes(line: &str) -> Option<u64> {
    let declaration = &line[line.find(".shared")?..];
    if !line.starts_with(".shared") && !line.contains(" .shared ") {
        return None;
    }
    let element = declaration.split_whitespace().find_map(|word| {
        let bits = word
            .strip_prefix(['.'])?
            .strip_prefix(['b', 'u', 's', 'f'])?;
        bits.parse::<u64>().ok()
    })?;
    let mut count = declaration
        .split('[')
        .skip(1)
        .map(|part| part.split(']').next()?.parse().ok());
    Some(element / 8 * count.try_fold(1, |all: u64, one: Option<u64>| all.checked_mul(one?))?)
}

//! Writes the text of the first benchmark: for a model that implements `TrainStep`, or an example to replace.

use std::fmt::Write as _;

use syn::{GenericArgument, Type};

use super::scan::{Field, ScannedFunction, ScannedModel, SourceScan, TrainStep, arguments, last, name_of};

/// The placeholder for each integer that creates a model.
const NUMBER: &str = "10";
/// The placeholder for the size of inputs: the size of the images in Burn's book.
const SIZE: usize = 28;

/// How models are written for a version of Burn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Burn 0.21: models and tensors have the backend as their first type parameter.
    Backend,
    /// Burn 0.22: they have no such parameter, and a device says where they are.
    Device,
}

impl Dialect {
    /// Returns the dialect of a Burn version, given as major and minor number.
    pub(super) fn new(burn: (u64, u64)) -> Self {
        match burn < (0, 22) {
            true => Self::Backend,
            false => Self::Device,
        }
    }

    /// Returns the type argument of a model: `::<B>`, or nothing.
    const fn parameter(self) -> &'static str {
        match self {
            Self::Backend => "::<B>",
            Self::Device => "",
        }
    }

    /// Returns the number of type parameters of a model.
    const fn parameters(self) -> usize {
        match self {
            Self::Backend => 1,
            Self::Device => 0,
        }
    }
}

/// The text of a benchmark, with the name of its model.
pub(super) struct Bench {
    pub(super) text: String,
    pub(super) model: String,
    /// The type that it trains, if the type is part of the project.
    pub(super) trains: Option<String>,
}

impl Bench {
    /// Writes a benchmark for the first `TrainStep` whose model and inputs the sources describe, or else the example.
    ///
    /// Types are named `root::…`, or without a root if the sources are modules of the benchmark itself.
    pub(super) fn new(scan: &SourceScan, dialect: Dialect, root: Option<&str>, modules: &str) -> Self {
        // The user's own model is better than an example, but only if every part of it can be written down.
        let found = scan
            .train_steps
            .iter()
            .find_map(|step| train_step(scan, step, dialect, root, modules));
        found.unwrap_or_else(|| example(scan, dialect, root, modules))
    }
}

/// Returns the names of the models that a benchmark declares with `cargo_vram::models!`; none if it cannot be parsed.
pub(super) fn declared_models(text: &str) -> Vec<String> {
    let items = syn::parse_file(text).map(|file| file.items).unwrap_or_default();
    let declarations = items.into_iter().filter_map(|item| match item {
        syn::Item::Macro(item) if item.mac.path.segments.last()?.ident == "models" => Some(item.mac.tokens.to_string()),
        _ => None,
    });
    let name = |path: &str| path.rsplit("::").next().map(|name| name.trim().to_owned());
    let names = declarations.flat_map(|tokens| tokens.split(',').filter_map(name).collect::<Vec<_>>());
    names.filter(|name| !name.is_empty()).collect()
}

fn named(path: &str, root: Option<&str>) -> String {
    root.map_or_else(|| path.to_owned(), |root| format!("{root}::{path}"))
}

fn example(scan: &SourceScan, dialect: Dialect, root: Option<&str>, modules: &str) -> Bench {
    let model = scan.models().into_iter().find_map(|found| scan.path(found));
    let model = model.map_or_else(
        || format!("{}::new(device)", named("model::Model", root.or(Some("crate")))),
        |path| named(&path, root),
    );
    let template = match dialect {
        Dialect::Backend => include_str!("vram_0_21.rs.template"),
        Dialect::Device => include_str!("vram_0_22.rs.template"),
    };
    let text = template.replace("MODEL", &model);
    Bench {
        text: text.replace("MODULES\n", modules),
        model: "first".to_owned(),
        trains: None,
    }
}

fn train_step(
    scan: &SourceScan,
    step: &TrainStep,
    dialect: Dialect,
    root: Option<&str>,
    modules: &str,
) -> Option<Bench> {
    let backend = step.backend.as_deref();
    // A `TrainStep` for one of the two versions does not compile with the other.
    if backend.is_some() != (dialect == Dialect::Backend) {
        return None;
    }
    let found = scan.find(&step.of, &step.module)?;
    let path = named(&scan.path(found)?, root);
    let make = Maker { scan, dialect, root }.model(found)?;
    let mut inputs = BenchInputs {
        scan,
        root,
        integers: false,
        size: false,
    };
    let batch = inputs.value(step.input.as_ref()?, backend, &step.module, 2)?;
    let model = snake_case(&found.name);
    let tensors = if inputs.integers { "{Int, Tensor}" } else { "Tensor" };
    let size = if inputs.size {
        format!("    let size = run.input(\"size\", {SIZE});\n")
    } else {
        String::new()
    };
    let template = match dialect {
        Dialect::Backend => include_str!("train_step_0_21.rs.template"),
        Dialect::Device => include_str!("train_step_0_22.rs.template"),
    };
    let text = template
        .replace("MODULES\n", modules)
        .replace("TENSORS", tensors)
        .replace("SIZE\n", &size)
        .replace("NAME", &model)
        .replace("PATH", &path)
        .replace("MAKE", &make)
        .replace("BATCH", &batch);
    Some(Bench {
        text,
        model,
        trains: Some(path),
    })
}

/// Writes the expression that creates a model.
struct Maker<'a> {
    scan: &'a SourceScan,
    dialect: Dialect,
    root: Option<&'a str>,
}

impl Maker<'_> {
    /// Writes `Model::<B>::new(device)`, or `ModelConfig::new(10).init::<B>(device)`.
    fn model(&self, model: &ScannedModel) -> Option<String> {
        let gives = |function: &&ScannedFunction| {
            let returned = self.scan.find(&function.returns, &function.module);
            // `init` could not write a value for a generic parameter other than the backend.
            returned.is_some_and(|it| std::ptr::eq(it, model)) && function.generics <= self.dialect.parameters()
        };
        let functions = self.scan.functions.iter().filter(gives);
        let (methods, plain): (Vec<_>, Vec<_>) = functions.partition(|function| function.has_self);
        let by_config = methods.into_iter().find_map(|function| {
            let config = self.scan.find(&function.of, &function.module)?;
            let [device] = function.parameters.as_slice() else {
                return None;
            };
            if !config.is_config() || !is_device(device) {
                return None;
            }
            let backend = if function.generics == 1 {
                self.dialect.parameter()
            } else {
                ""
            };
            Some(format!(
                "{}.{}{backend}(device)",
                self.config(config, 0)?,
                function.name
            ))
        });
        by_config.or_else(|| {
            plain.into_iter().find_map(|function| {
                let of = self.scan.find(&function.of, &function.module)?;
                if !std::ptr::eq(of, model) || of.parameters.len() != self.dialect.parameters() || function.generics > 0
                {
                    return None;
                }
                let arguments: Vec<_> = function
                    .names
                    .iter()
                    .zip(&function.parameters)
                    .map(|(name, ty)| self.argument(name, ty, &function.module, 0))
                    .collect::<Option<_>>()?;
                let path = named(&self.scan.path(of)?, self.root);
                let backend = self.dialect.parameter();
                Some(format!("{path}{backend}::{}({})", function.name, arguments.join(", ")))
            })
        })
    }

    /// Writes `ModelConfig::new(10)`, with a value for each field without a default.
    fn config(&self, config: &ScannedModel, depth: usize) -> Option<String> {
        let fields = config.fields.as_ref()?.iter().filter(|field| !field.has_default);
        let argument = |field: &Field| self.argument(&field.name, &field.ty, &config.module, depth);
        let arguments: Vec<_> = fields.map(argument).collect::<Option<_>>()?;
        let path = named(&self.scan.path(config)?, self.root);
        Some(format!("{path}::new({})", arguments.join(", ")))
    }

    fn argument(&self, name: &str, ty: &Type, module: &[String], depth: usize) -> Option<String> {
        if is_device(ty) {
            return Some("device".to_owned());
        }
        let value = match ty {
            Type::Array(array) => {
                let syn::Expr::Lit(length) = &array.len else {
                    return None;
                };
                let syn::Lit::Int(length) = &length.lit else {
                    return None;
                };
                format!("[{}; {}]", number(&name_of(&array.elem)?)?, length.base10_digits())
            }
            ty => match name_of(ty)?.as_str() {
                "Option" => "None".to_owned(),
                "String" => "String::new()".to_owned(),
                "bool" => "false".to_owned(),
                ty_name => match number(ty_name) {
                    Some(number) => number.to_owned(),
                    // A configuration may contain another one. The depth limit stops one that contains itself.
                    None if depth < 8 => {
                        let config = self.scan.find(ty_name, module).filter(|found| found.is_config())?;
                        self.config(config, depth + 1)?
                    }
                    None => return None,
                },
            },
        };
        Some(format!("/* {name} */ {value}"))
    }
}

fn number(ty: &str) -> Option<&'static str> {
    match ty {
        "usize" | "u64" | "u32" | "u16" | "u8" | "isize" | "i64" | "i32" | "i16" | "i8" => Some(NUMBER),
        "f64" | "f32" => Some("0.1"),
        _ => None,
    }
}

/// Whether a type is a reference to a device: `&B::Device`, `&Device<B>`.
fn is_device(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => name_of(&reference.elem).as_deref() == Some("Device"),
        _ => false,
    }
}

/// Writes the expression that creates the inputs of a step.
struct BenchInputs<'a> {
    scan: &'a SourceScan,
    root: Option<&'a str>,
    integers: bool,
    size: bool,
}

impl BenchInputs<'_> {
    /// Writes a tensor, or a tuple or a struct of tensors, at this depth of indentation.
    fn value(&mut self, ty: &Type, backend: Option<&str>, module: &[String], depth: usize) -> Option<String> {
        if let Type::Tuple(tuple) = ty {
            let parts: Vec<_> = tuple
                .elems
                .iter()
                .map(|ty| self.value(ty, backend, module, depth))
                .collect::<Option<_>>()?;
            return Some(format!("({})", parts.join(", ")));
        }
        let segment = last(ty)?;
        let given = arguments(segment);
        if segment.ident == "Tensor" {
            return self.tensor(&given, backend);
        }
        let found = self.scan.find(&segment.ident.to_string(), module)?;
        let own = match (backend, given.as_slice(), found.parameters.as_slice()) {
            (None, [], []) => None,
            (Some(backend), [GenericArgument::Type(argument)], [own]) => {
                if name_of(argument).as_deref() != Some(backend) {
                    return None;
                }
                Some(own.as_str())
            }
            _ => return None,
        };
        // Also stops a type that contains itself.
        if depth > 8 {
            return None;
        }
        let indent = "    ".repeat(depth + 1);
        let mut text = format!("{} {{\n", named(&self.scan.path(found)?, self.root));
        for field in found.fields.as_ref()? {
            // A benchmark cannot name a private field.
            if !field.is_visible {
                return None;
            }
            let value = self.value(&field.ty, own, &found.module, depth + 1)?;
            let _ = writeln!(text, "{indent}{}: {value},", field.name);
        }
        let _ = write!(text, "{}}}", "    ".repeat(depth));
        Some(text)
    }

    /// Writes a value of `Tensor<B, 2>` or `Tensor<B, 1, Int>`; without a backend, of `Tensor<2>` or `Tensor<1, Int>`.
    fn tensor(&mut self, given: &[&GenericArgument], backend: Option<&str>) -> Option<String> {
        let given = match (backend, given) {
            (None, given) => given,
            (Some(backend), [GenericArgument::Type(owner), given @ ..]) => {
                if name_of(owner).as_deref() != Some(backend) {
                    return None;
                }
                given
            }
            _ => return None,
        };
        let (rank, kind) = match given {
            [rank] => (rank, None),
            [rank, GenericArgument::Type(kind)] => (rank, Some(name_of(kind)?)),
            _ => return None,
        };
        let GenericArgument::Const(syn::Expr::Lit(rank)) = rank else {
            return None;
        };
        let syn::Lit::Int(rank) = &rank.lit else {
            return None;
        };
        let kind = match kind.as_deref() {
            None | Some("Float") => "",
            Some("Int") => {
                self.integers = true;
                ", Int"
            }
            Some(_) => return None,
        };
        let rank: usize = rank.base10_parse().ok()?;
        let shape = match rank {
            1 => "batch_size",
            2 => "batch_size, size",
            3 => "batch_size, size, size",
            4 => "batch_size, 3, size, size",
            5 => "batch_size, 3, size, size, size",
            _ => return None,
        };
        self.size |= rank > 1;
        let owner = if backend.is_some() { "B, " } else { "" };
        Some(format!("Tensor::<{owner}{rank}{kind}>::zeros([{shape}], device)"))
    }
}

/// Converts a name to snake case: `ResNet18` becomes `res_net18`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut last_was_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && last_was_lower {
            snake.push('_');
        }
        last_was_lower = !c.is_uppercase();
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;

    use super::{Bench, Dialect, SourceScan, declared_models};

    #[test]
    fn a_train_step_of_burn_0_22_is_trained_as_its_users_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(folder.path()).unwrap().join("lib.rs");
        std::fs::write(
            &root,
            "#[derive(Module)] pub struct Net { a: Linear }
            #[derive(Config)] pub struct NetConfig { classes: usize }
            impl NetConfig { pub fn init(&self, device: &Device) -> Net { todo!() } }
            pub struct Batch { pub images: Tensor<3>, pub labels: Tensor<1, Int> }
            impl TrainStep for Net { type Input = Batch; type Output = ClassificationOutput; }",
        )
        .unwrap();
        let scan = SourceScan::read(&root, Default::default(), false);
        let bench = Bench::new(&scan, Dialect::new((0, 22)), Some("nets"), "");
        assert_eq!(
            (bench.model.as_str(), bench.trains.as_deref()),
            ("net", Some("nets::Net"))
        );
        for line in [
            "use cargo_vram::burn_0_22::Run;",
            "fn net(run: &mut Run) {",
            "    run.model(move |device| nets::NetConfig::new(/* classes */ 10).init(device))",
            "            images: Tensor::<3>::zeros([batch_size, size, size], device),",
            "            labels: Tensor::<1, Int>::zeros([batch_size], device),",
        ] {
            assert!(bench.text.contains(line), "{line}\n{}", bench.text);
        }
        // A `TrainStep` that is written for one Burn version cannot be trained with the other.
        assert_eq!(Bench::new(&scan, Dialect::new((0, 21)), Some("nets"), "").trains, None);
    }

    #[test]
    fn the_models_of_a_benchmark_are_those_that_it_declares() {
        let text = "use cargo_vram::Run;\ncargo_vram::models!(first, nets::second,);\nfn first() {}\n";
        assert_eq!(declared_models(text), ["first", "second"]);
        assert!(declared_models("fn main() { models!(a) }").is_empty());
        assert!(declared_models("no Rust").is_empty());
    }
}

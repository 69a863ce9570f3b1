//! Scans a package's sources for its models: which types implement `Module` and `TrainStep`, and how they are created.
//!
//! The sources are parsed and not compiled, so macros are not expanded. `init` also works if the scan finds nothing.

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use syn::{Attribute, Fields, FnArg, GenericParam, Item, ReturnType, Type, Visibility};

use super::conditions::CompiledCode;

/// The result of a scan, in the order of the sources.
#[derive(Default)]
pub(super) struct SourceScan {
    pub(super) types: Vec<ScannedModel>,
    pub(super) functions: Vec<ScannedFunction>,
    pub(super) train_steps: Vec<TrainStep>,
    /// The types whose `TrainStep` is compiled only with a feature of the package that is off, with that feature.
    pub(super) hidden_train_steps: Vec<(String, String)>,
    /// The modules that the root file declares and that have their own files, with these files.
    pub(super) files: Vec<(String, Utf8PathBuf)>,
    exports: Vec<Export>,
    /// The types that implement `Module` by hand.
    by_hand: Vec<(String, Vec<String>)>,
    /// The first names of the paths that begin with `crate`.
    own_paths: Vec<String>,
    /// The features of the package that are on when the benchmark is built.
    features: BTreeSet<String>,
}

/// A struct or an enum.
pub(super) struct ScannedModel {
    pub(super) name: String,
    pub(super) module: Vec<String>,
    pub(super) file: Utf8PathBuf,
    /// Whether its own path is visible from outside.
    is_visible: bool,
    derives: Vec<String>,
    /// The names of its type parameters.
    pub(super) parameters: Vec<String>,
    /// The fields of a struct with named fields.
    pub(super) fields: Option<Vec<Field>>,
}

/// A field of a struct.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    /// Whether `#[derive(Config)]` gives it a default value.
    pub(super) has_default: bool,
    pub(super) is_visible: bool,
}

/// A function in a type's inherent `impl`.
pub(super) struct ScannedFunction {
    /// The name of the type.
    pub(super) of: String,
    /// The module of the `impl`.
    pub(super) module: Vec<String>,
    pub(super) name: String,
    pub(super) has_self: bool,
    pub(super) parameters: Vec<Type>,
    pub(super) names: Vec<String>,
    /// The name of the type that it returns.
    pub(super) returns: String,
    /// The number of its own generic parameters, without lifetimes.
    pub(super) generics: usize,
}

/// An implementation of Burn's `TrainStep`.
pub(super) struct TrainStep {
    pub(super) of: String,
    pub(super) module: Vec<String>,
    /// The name of the type parameter for the backend.
    pub(super) backend: Option<String>,
    pub(super) input: Option<Type>,
}

/// A `pub use path::Name as other`, or `pub use path::*`.
struct Export {
    module: Vec<String>,
    path: Vec<String>,
    /// The name of the exported item here; `None` for all items of a module.
    name: Option<String>,
}

/// The position of the scan in the sources.
struct ModelPlace<'a> {
    module: Vec<String>,
    file: &'a Utf8Path,
    /// The folder of the files of this module's submodules.
    folder: Utf8PathBuf,
    is_visible: bool,
    /// The feature that everything here needs to be compiled, if that feature is off.
    hidden_by: Option<String>,
}

impl SourceScan {
    /// Reads the root file of a library or a program, and the modules below it.
    ///
    /// The modules of a program become modules of the benchmark, so `pub(crate)` items in them are visible, too.
    pub(super) fn read(root: &Utf8Path, features: BTreeSet<String>, of_program: bool) -> Self {
        let mut scan = Self {
            features,
            ..Self::default()
        };
        let place = ModelPlace {
            module: Vec::new(),
            file: root,
            folder: root.parent().unwrap_or(Utf8Path::new("")).to_owned(),
            is_visible: true,
            hidden_by: None,
        };
        scan.file(&place, of_program);
        scan
    }

    /// Returns the types that implement `Module`: first those with a `TrainStep`, then those that no other contains.
    pub(super) fn models(&self) -> Vec<&ScannedModel> {
        let is_module = |found: &&ScannedModel| {
            let by_hand = |(name, module): &(String, Vec<String>)| *name == found.name && *module == found.module;
            found.derives.iter().any(|derive| derive == "Module") || self.by_hand.iter().any(by_hand)
        };
        let mut models: Vec<_> = self.types.iter().filter(is_module).collect();
        let is_part = |found: &ScannedModel| {
            let fields = |other: &&ScannedModel| other.name != found.name && other.mentions(&found.name);
            models.iter().any(fields)
        };
        let parts: Vec<_> = models.iter().map(|found| is_part(found)).collect();
        let mut order: Vec<_> = (0..models.len()).collect();
        // A model that trains is the best first benchmark, and a block of another model the worst.
        order.sort_by_key(|at| (!self.trains(models[*at]), parts[*at]));
        models = order.into_iter().map(|at| models[at]).collect();
        models
    }

    /// Whether a type implements `TrainStep`.
    pub(super) fn trains(&self, found: &ScannedModel) -> bool {
        let is_it = |step: &&TrainStep| {
            self.find(&step.of, &step.module)
                .is_some_and(|it| std::ptr::eq(it, found))
        };
        self.train_steps.iter().any(|step| is_it(&step))
    }

    /// Finds the type of a name that is used in a module: the type in that module, or the only type with that name.
    pub(super) fn find(&self, name: &str, module: &[String]) -> Option<&ScannedModel> {
        // Imports are not resolved. So a name from elsewhere counts only if there is one such type.
        let named: Vec<_> = self.types.iter().filter(|found| found.name == name).collect();
        let here = named.iter().find(|found| found.module == module);
        match (here, named.as_slice()) {
            (Some(here), _) => Some(here),
            (None, [one]) => Some(one),
            _ => None,
        }
    }

    /// Returns the path of a type below the root: its own, or that of an export; `None` if the type is private.
    pub(super) fn path(&self, found: &ScannedModel) -> Option<String> {
        let joined = |module: &[String], name: &str| [module, &[name.to_owned()]].concat().join("::");
        if found.is_visible {
            return Some(joined(&found.module, &found.name));
        }
        // A type of a private module may have a public name elsewhere.
        self.exports.iter().find_map(|export| {
            let target = export.target();
            let (module, name) = match &export.name {
                Some(name) => (target.split_last()?.1.to_vec(), name),
                None => (target.clone(), &found.name),
            };
            let is_it = module == found.module && (export.name.is_none() || target.last() == Some(&found.name));
            is_it.then(|| joined(&export.module, name))
        })
    }

    /// Whether the modules with their own files use nothing else of their program.
    pub(super) fn files_stand_alone(&self) -> bool {
        let is_file = |name: &String| self.files.iter().any(|(file, _)| file == name);
        self.own_paths.iter().all(is_file)
    }

    fn file(&mut self, place: &ModelPlace<'_>, of_program: bool) {
        let Ok(text) = std::fs::read_to_string(place.file) else {
            return;
        };
        // A file that does not parse has no models for `init`. The build will report what is wrong with it.
        let Ok(parsed) = syn::parse_file(&text) else {
            return;
        };
        // In the text, because the parser does not look into macros.
        for rest in text.split("crate::").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !place.module.is_empty() && !name.is_empty() {
                self.own_paths.push(name);
            }
        }
        self.items(&parsed.items, place, of_program);
    }

    fn items(&mut self, items: &[Item], place: &ModelPlace<'_>, of_program: bool) {
        let seen = |visibility: &Visibility| {
            let is_restricted = matches!(visibility, Visibility::Restricted(_));
            place.is_visible && (matches!(visibility, Visibility::Public(_)) || of_program && is_restricted)
        };
        for item in items {
            let hidden_by = match CompiledCode::new(attributes(item), &self.features) {
                CompiledCode::No => continue,
                CompiledCode::WithFeature(feature) => Some(feature),
                CompiledCode::Yes => place.hidden_by.clone(),
            };
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let mut module = place.module.clone();
                    module.push(name.clone());
                    // The top modules of a program become modules of the benchmark, which can see them.
                    let is_visible = seen(&inner.vis) || of_program && place.module.is_empty();
                    if let Some((_, items)) = &inner.content {
                        let folder = place.folder.join(&name);
                        let file = place.file;
                        let place = ModelPlace {
                            module,
                            file,
                            folder,
                            is_visible,
                            hidden_by,
                        };
                        self.items(items, &place, of_program);
                    } else if let Some((file, folder)) = file_of(&name, &inner.attrs, place) {
                        // The benchmark includes only these by path. Each brings its own submodules.
                        if place.module.is_empty() && hidden_by.is_none() {
                            self.files.push((name, file.clone()));
                        }
                        let place = ModelPlace {
                            module,
                            file: &file,
                            folder,
                            is_visible,
                            hidden_by,
                        };
                        self.file(&place, of_program);
                    }
                }
                // Only for a hint: the user may turn this feature on.
                Item::Impl(item) if hidden_by.is_some() => {
                    let is_train_step = implemented(item).is_some_and(|name| name == "TrainStep");
                    let of = name_of(&item.self_ty).filter(|_| is_train_step);
                    self.hidden_train_steps.extend(of.zip(hidden_by));
                }
                _ if hidden_by.is_some() => {}
                Item::Struct(item) => {
                    let fields = match &item.fields {
                        Fields::Named(fields) => Some(fields.named.iter().map(|it| field(it, of_program)).collect()),
                        _ => None,
                    };
                    let found =
                        ScannedModel::new(&item.ident, place, seen(&item.vis), &item.attrs, &item.generics, fields);
                    self.types.push(found);
                }
                Item::Enum(item) => {
                    let found =
                        ScannedModel::new(&item.ident, place, seen(&item.vis), &item.attrs, &item.generics, None);
                    self.types.push(found);
                }
                Item::Impl(item) => self.implementation(item, place, of_program),
                Item::Use(item) if seen(&item.vis) => self.export(&item.tree, place, &mut Vec::new()),
                _ => {}
            }
        }
    }

    fn implementation(&mut self, item: &syn::ItemImpl, place: &ModelPlace<'_>, of_program: bool) {
        let Some(of) = name_of(&item.self_ty) else {
            return;
        };
        let module = place.module.clone();
        if item.trait_.is_some() {
            match implemented(item).as_deref() {
                Some("Module") => self.by_hand.push((of, module)),
                Some("TrainStep") => {
                    let input = item.items.iter().find_map(|item| match item {
                        syn::ImplItem::Type(it) if it.ident == "Input" => Some(it.ty.clone()),
                        _ => None,
                    });
                    self.train_steps.push(TrainStep {
                        of,
                        module,
                        backend: backend_of(item),
                        input,
                    });
                }
                _ => {}
            }
            return;
        }
        for function in item.items.iter() {
            let syn::ImplItem::Fn(function) = function else {
                continue;
            };
            let is_visible = match &function.vis {
                Visibility::Public(_) => true,
                Visibility::Restricted(_) => of_program,
                Visibility::Inherited => false,
            };
            let ReturnType::Type(_, returned) = &function.sig.output else {
                continue;
            };
            // A benchmark calls it as plain code: it must see the function, and cannot await.
            let Some(returns) = name_of(returned).filter(|_| is_visible && function.sig.asyncness.is_none()) else {
                continue;
            };
            let typed = function.sig.inputs.iter().filter_map(|input| match input {
                FnArg::Typed(typed) => Some(typed),
                FnArg::Receiver(_) => None,
            });
            let name = |typed: &&syn::PatType| match &*typed.pat {
                syn::Pat::Ident(name) => name.ident.to_string(),
                _ => "_".to_owned(),
            };
            let generics = function.sig.generics.params.iter();
            self.functions.push(ScannedFunction {
                returns: if returns == "Self" { of.clone() } else { returns },
                of: of.clone(),
                module: module.clone(),
                name: function.sig.ident.to_string(),
                has_self: function.sig.receiver().is_some(),
                names: typed.clone().map(|it| name(&it)).collect(),
                parameters: typed.map(|typed| (*typed.ty).clone()).collect(),
                generics: generics.filter(|it| !matches!(it, GenericParam::Lifetime(_))).count(),
            });
        }
    }

    fn export(&mut self, tree: &syn::UseTree, place: &ModelPlace<'_>, path: &mut Vec<String>) {
        let mut push = |path: &[String], name: Option<String>| {
            self.exports.push(Export {
                module: place.module.clone(),
                path: path.to_vec(),
                name,
            });
        };
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.export(&inner.tree, place, path);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.export(tree, place, path);
                }
            }
            syn::UseTree::Glob(_) => push(path, None),
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                push(&[&path[..], std::slice::from_ref(&name)].concat(), Some(name));
            }
            syn::UseTree::Rename(rename) => {
                let path = [&path[..], &[rename.ident.to_string()]].concat();
                push(&path, Some(rename.rename.to_string()));
            }
        }
    }
}

impl Export {
    /// Returns the path of the exported item from the root.
    fn target(&self) -> Vec<String> {
        let mut target = self.module.clone();
        let mut rest = self.path.as_slice();
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "crate" => target.clear(),
                "self" => {}
                "super" => {
                    target.pop();
                }
                _ => break,
            }
            rest = others;
        }
        target.extend_from_slice(rest);
        target
    }
}

impl ScannedModel {
    fn new(
        name: &syn::Ident,
        place: &ModelPlace<'_>,
        is_visible: bool,
        attributes: &[Attribute],
        generics: &syn::Generics,
        fields: Option<Vec<Field>>,
    ) -> Self {
        Self {
            name: name.to_string(),
            module: place.module.clone(),
            file: place.file.to_owned(),
            is_visible,
            derives: derives(attributes),
            parameters: generics.type_params().map(|it| it.ident.to_string()).collect(),
            fields,
        }
    }

    /// Whether the type is a Burn configuration: it derives `Config`.
    pub(super) fn is_config(&self) -> bool {
        self.derives.iter().any(|derive| derive == "Config")
    }

    fn mentions(&self, name: &str) -> bool {
        let fields = self.fields.iter().flatten();
        fields.into_iter().any(|field| names_in(&field.ty, name))
    }
}

/// Returns the last name in the path of a type: `Model` in `crate::model::Model<B>`.
pub(super) fn name_of(ty: &Type) -> Option<String> {
    last(ty).map(|segment| segment.ident.to_string())
}

/// Returns the last segment of a type's path, with its arguments.
pub(super) fn last(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        Type::Group(group) => last(&group.elem),
        Type::Paren(paren) => last(&paren.elem),
        _ => None,
    }
}

/// Returns the generic arguments of a path segment.
pub(super) fn arguments(segment: &syn::PathSegment) -> Vec<&syn::GenericArgument> {
    match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => arguments.args.iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the only type argument of the implementing type, if it is a type parameter of the `impl`.
fn backend_of(item: &syn::ItemImpl) -> Option<String> {
    let segment = last(&item.self_ty)?;
    let [syn::GenericArgument::Type(argument)] = arguments(segment).as_slice() else {
        return None;
    };
    let name = name_of(argument)?;
    let mut parameters = item.generics.type_params();
    parameters.any(|it| it.ident == name).then_some(name)
}

/// Whether a type contains a name: `Option<Vec<Block<B>>>` contains `Block`.
fn names_in(ty: &Type, name: &str) -> bool {
    let in_argument = |argument: &&syn::GenericArgument| match argument {
        syn::GenericArgument::Type(ty) => names_in(ty, name),
        _ => false,
    };
    match ty {
        Type::Path(path) => path
            .path
            .segments
            .iter()
            .any(|segment| segment.ident == name || arguments(segment).iter().any(in_argument)),
        Type::Array(array) => names_in(&array.elem, name),
        Type::Tuple(tuple) => tuple.elems.iter().any(|ty| names_in(ty, name)),
        _ => false,
    }
}

fn field(field: &syn::Field, of_program: bool) -> Field {
    let is_config = |attribute: &&Attribute| attribute.path().is_ident("config");
    let is_optional = name_of(&field.ty).as_deref() == Some("Option");
    Field {
        name: field.ident.as_ref().map(ToString::to_string).unwrap_or_default(),
        ty: field.ty.clone(),
        // As Burn's `Config` derives `new`: optional fields are not parameters of it.
        has_default: is_optional || field.attrs.iter().any(|it| is_config(&it)),
        is_visible: match field.vis {
            Visibility::Public(_) => true,
            Visibility::Restricted(_) => of_program,
            Visibility::Inherited => false,
        },
    }
}

fn derives(attributes: &[Attribute]) -> Vec<String> {
    let mut derives = Vec::new();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("derive"))
    {
        // An attribute that cannot be parsed derives nothing that matters here.
        let _ = attribute.parse_nested_meta(|meta| {
            // `Module` may be written as `burn::module::Module`.
            derives.extend(meta.path.segments.last().map(|segment| segment.ident.to_string()));
            Ok(())
        });
    }
    derives
}

/// Returns the attributes of an item, if the scan handles its kind.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the last name in the path of the implemented trait.
fn implemented(item: &syn::ItemImpl) -> Option<String> {
    let (_, path, _) = item.trait_.as_ref()?;
    path.segments.last().map(|segment| segment.ident.to_string())
}

/// Returns the file of a module, and the folder of its submodules.
fn file_of(name: &str, attributes: &[Attribute], place: &ModelPlace<'_>) -> Option<(Utf8PathBuf, Utf8PathBuf)> {
    let path = attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(path) => Some(path.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    if let Some(path) = path {
        let file = place.file.parent()?.join(path);
        let folder = file.parent()?.to_owned();
        return Some((file, folder));
    }
    let folder = place.folder.join(name);
    [place.folder.join(format!("{name}.rs")), folder.join("mod.rs")]
        .into_iter()
        .find(|file| file.is_file())
        .map(|file| (file, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_with_the_paths_by_which_a_benchmark_can_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(folder.path()).unwrap();
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "lib.rs",
            "pub mod model;\nmod hidden;\npub mod deep { pub mod inner; }\npub use hidden::Exported as Shown;\npub mod all { pub use super::hidden::deeper::*; }\n",
        );
        write(
            "model.rs",
            "#[derive(Debug, burn::module::Module)]\npub struct Block<B: Backend> { a: Linear<B> }\n#[derive(Module)]\npub struct Model<B: Backend> { blocks: Vec<Block<B>> }\n#[cfg(test)]\nmod tests { #[derive(Module)] pub struct OfTests<B> { a: B } }\n",
        );
        write(
            "hidden.rs",
            "pub mod deeper { #[derive(Module)] pub struct Glob<B> { a: B } }\n#[derive(Module)] pub struct Exported<B> { a: B }\n#[derive(Module)] pub struct Private<B> { a: B }\npub struct Plain;\n",
        );
        write(
            "deep/inner.rs",
            "pub struct ByHand<B> { a: B }\nimpl<B: Backend> Module<B> for ByHand<B> {}\n",
        );
        write("hidden/unused.rs", "#[derive(Module)] pub struct Unused<B> { a: B }\n");
        write("train.rs", "");
        let scan = SourceScan::read(&root.join("lib.rs"), BTreeSet::new(), false);
        let found: Vec<_> = scan
            .models()
            .into_iter()
            .map(|found| (found.name.as_str(), scan.path(found)))
            .collect();
        let path = |path: &str| Some(path.to_owned());
        assert_eq!(
            found,
            [
                ("Model", path("model::Model")),
                ("Glob", path("all::Glob")),
                ("Exported", path("Shown")),
                ("Private", None),
                ("ByHand", path("deep::inner::ByHand")),
                ("Block", path("model::Block")),
            ]
        );
    }

    #[test]
    fn a_train_step_behind_a_feature_that_is_off_is_hidden_by_that_feature() {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(folder.path()).unwrap();
        let lib = "#[derive(Module)] pub struct Net<B> { a: B }\n#[cfg(feature = \"train\")]\nmod training;\n";
        std::fs::write(root.join("lib.rs"), lib).unwrap();
        std::fs::write(
            root.join("training.rs"),
            "impl<B: Backend> TrainStep for Net<B> { type Input = Batch<B>; }\n",
        )
        .unwrap();
        let read = |features: &[&str]| {
            let features = features.iter().map(|feature| (*feature).to_owned()).collect();
            SourceScan::read(&root.join("lib.rs"), features, false)
        };
        let off = read(&[]);
        assert!(off.train_steps.is_empty());
        assert_eq!(off.hidden_train_steps, [("Net".to_owned(), "train".to_owned())]);
        let on = read(&["train"]);
        assert_eq!((on.train_steps.len(), on.hidden_train_steps.len()), (1, 0));
    }
}

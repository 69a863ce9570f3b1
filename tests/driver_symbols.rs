//! The driver has every function that Burn's bindings can look up. A missing function would panic in a thread, while
//! the program goes on and exits with code 0.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;
use object::{Object, ObjectSymbol};

use crate::driver_support;

/// The folder of `cudarc`'s source, from `cargo metadata`.
fn cudarc() -> PathBuf {
    let metadata = MetadataCommand::new()
        .manifest_path(driver_support::root().join("Cargo.toml"))
        .exec()
        .expect("cargo metadata");
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "cudarc");
    let manifest = &package.expect("cudarc among the dependencies").manifest_path;
    manifest.parent().expect("a folder").as_std_path().join("src")
}

/// The names of the functions that a module of `cudarc` looks up at run time.
fn looked_up(source: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(source).expect("cudarc's source");
    let names = text
        .split("load::<_F>(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

fn exported(library: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(library).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    symbols
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .collect()
}

#[test]
fn the_driver_has_every_function_that_the_bindings_look_up() {
    let cudarc = cudarc();
    let exported = exported(&driver_support::library().library);
    for (module, least) in [("driver", 500), ("nvrtc", 20), ("nccl", 50)] {
        let wanted = looked_up(&cudarc.join(module).join("sys/mod.rs"));
        assert!(wanted.len() > least, "{} functions in cudarc's {module}", wanted.len());
        let missing: Vec<_> = wanted.difference(&exported).collect();
        assert!(missing.is_empty(), "missing: {missing:?}");
    }
}

#[test]
fn the_driver_exports_nothing_but_cuda_and_what_it_puts_before_the_process() {
    let exported = exported(&driver_support::library().library);
    let other: Vec<_> = exported
        .iter()
        .filter(|name| !["cu", "nvrtc", "nccl"].iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert_eq!(
        other,
        ["_Unwind_RaiseException", "clock_gettime", "getrandom", "syscall"]
    );
}

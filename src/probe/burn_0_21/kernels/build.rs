//! Sets the configuration `shared` if rustc shares generic code between crates at this crate's optimization level.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(shared)");
    // Cargo sets this variable. See `share_generics` in rustc's session options.
    if std::env::var("OPT_LEVEL").is_ok_and(|level| ["0", "1", "s", "z"].contains(&level.as_str())) {
        println!("cargo::rustc-cfg=shared");
    }
}

//! Builds the driver for a test.

pub(crate) mod posing;

use std::path::{Path, PathBuf};

use cargo_vram::driver::{self, DriverLibrary};

/// The compiler with which this test was built.
pub(crate) fn rustc() -> PathBuf {
    std::env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from)
}

/// The target folder of this test.
pub(crate) fn target_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    // <target>/<profile>/deps/<test>
    test.ancestors().nth(3).expect("a folder of a profile").to_owned()
}

pub(crate) fn library() -> DriverLibrary {
    driver::build(&rustc(), None, &target_dir()).expect("the driver builds")
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

//! Files that cannot be read.

use camino::Utf8Path;
use cargo_vram::budget::{BudgetError, Budgets};

use super::{GPUS, shown};

fn load(path: &std::path::Path) -> Result<Budgets, BudgetError> {
    Budgets::load(Utf8Path::from_path(path).expect("UTF-8"), "budgets.yaml", &GPUS)
}

fn written(bytes: &[u8]) -> Result<Budgets, BudgetError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("budgets.yaml");
    std::fs::write(&path, bytes).expect("a file");
    load(&path)
}

#[test]
fn a_file_is_read() {
    let budgets = written(b"version: 1\r\ngpu: l4\r\nmodels: { a: { live: 1 GiB } }\r\n").expect("good");
    assert_eq!(budgets.models.len(), 1);
}

#[test]
fn a_byte_order_mark_is_no_column() {
    let error = written(b"\xef\xbb\xbfversoin: 1\n").expect_err("a mistake");
    assert!(error.problems()[0].to_string().starts_with("budgets.yaml:1:1: "));
    assert!(written(b"\xef\xbb\xbfversion: 1\n").is_ok());
}

#[test]
fn text_that_is_not_utf_8_is_refused_at_its_byte() {
    let error = written(b"version: 1\ngpu: l4 # f\xfcr\n").expect_err("not UTF-8");
    assert_shown!(shown(&error));
}

#[test]
fn utf_16_is_refused() {
    let error = written(b"\xff\xfev\0e\0r\0s\0i\0o\0n\0").expect_err("not UTF-8");
    assert_eq!(
        error.problems()[0].to_string(),
        "budgets.yaml:1:1: the byte 0xff at offset 0 is not UTF-8"
    );
    // UTF-16 without a byte order mark is valid UTF-8 with many NULs.
    let error = written(b"v\0e\0r\0s\0i\0o\0n\0").expect_err("NUL");
    assert_eq!(error.problems()[0].code(), "budgets::control-character");
}

#[test]
fn a_file_of_10_mb_is_refused() {
    let error = written("# filler\n".repeat(1_200_000).as_bytes()).expect_err("too large");
    assert_shown!(shown(&error));
    assert!(Budgets::parse(&vec![b' '; 10 << 20], "budgets.yaml", &GPUS).is_err());
}

#[test]
fn a_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_shown!(shown(&load(folder.path()).expect_err("a folder")));
}

#[cfg(unix)]
#[test]
fn what_is_neither_file_nor_folder_is_refused_without_waiting() {
    let error = load("/dev/null".as_ref()).expect_err("a device");
    assert_shown!(shown(&error));
}

#[cfg(unix)]
#[test]
fn a_file_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_shown!(shown(&load(&folder.path().join("budgets.yaml")).expect_err("no file")));
}

/// Root may read every file, so this test does nothing as root. Another test checks the mapping of the system's error.
#[cfg(unix)]
#[test]
fn a_file_without_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("budgets.yaml");
    std::fs::write(&path, "version: 1\n").expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("permissions");
    if std::fs::File::open(&path).is_err() {
        assert_shown!(shown(&load(&path).expect_err("no permission")));
    }
}

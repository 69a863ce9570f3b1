//! Archives that the tool refuses: each mistake has its own error code, and no unpacked file stays.

use cargo_vram::archive::{self, ArchiveError};
use proptest::prelude::*;
use serde_json::{Value, json};
use tar::EntryType;

use crate::archive_support::{Entries, Entry, assert_refused, compress, sound, sound_tar, tiny, try_unpack};

#[test]
fn an_archive_of_something_else_is_refused() {
    assert_refused(b"", "empty");
    assert_refused(&sound_tar(), "not_zstd");
    assert_refused(b"#!/bin/sh\n", "not_zstd");
    assert_refused(&[0x1f, 0x8b, 8, 0], "not_zstd");
    assert_refused(&compress(b""), "cut_short");
    assert_refused(&compress(&[0; 1024]), "no_manifest");
    assert_refused(&compress(&[b'x'; 4096]), "kind");
    let mut entries = Entries::sound();
    entries.0.rotate_left(1);
    assert_refused(&entries.bytes(), "no_manifest");
}

#[test]
fn a_cut_short_archive_is_refused() {
    let bytes = sound();
    let ends = (1..40)
        .chain((40..bytes.len() - 40).step_by(61))
        .chain(bytes.len() - 40..bytes.len());
    for end in ends {
        assert_refused(&bytes[..end], "cut_short");
    }
}

#[test]
fn a_cut_short_tar_in_a_whole_frame_is_refused() {
    let tar = sound_tar();
    for end in (0..tar.len()).step_by(512) {
        assert_refused(&compress(&tar[..end]), "cut_short");
        assert_refused(&compress(&tar[..end + 100]), "cut_short");
    }
    assert_refused(&compress(&tar[..tar.len() - 1]), "cut_short");
}

#[test]
fn whatever_follows_an_archive_is_refused() {
    let followed = |by: &[u8]| [sound(), by].concat();
    assert_refused(&followed(b"x"), "trailing");
    assert_refused(&followed(&[0; 512]), "trailing");
    assert_refused(&followed(sound()), "trailing");
    assert_refused(&followed(&compress(b"")), "trailing");
    let tar = sound_tar();
    assert_refused(&compress(&[&tar[..], &[0; 512]].concat()), "trailing");
    assert_refused(&compress(&[&tar[..], &tar].concat()), "trailing");
    assert_refused(&compress(&[&tar[..tar.len() - 512], &tar].concat()), "damaged");
}

#[test]
fn changed_bytes_are_refused() {
    // A changed file in a frame with a correct checksum.
    let mut entries = Entries::sound();
    entries.named("workspace/budgets.yaml").data[0] ^= 1;
    assert_refused(&entries.bytes(), "changed");
    let mut entries = Entries::sound();
    *entries.named("models/0/vram").data.last_mut().unwrap() ^= 1;
    assert_refused(&entries.bytes(), "changed");
    // A frame with a wrong checksum.
    let mut bytes = sound().to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_refused(&bytes, "damaged");
    // A byte after the end of the last entry.
    let mut tar = sound_tar();
    let at = tar.len() - 1024 - 1;
    tar[at] = 1;
    assert_refused(&compress(&tar), "damaged");
}

#[test]
fn a_file_that_is_missing_or_that_nobody_named_is_refused() {
    for path in ["driver/vram-survey", "models/0/vram", "workspace/budgets.lock"] {
        let mut entries = Entries::sound();
        entries.0.retain(|entry| entry.path() != path);
        assert_refused(&entries.bytes(), "missing");
    }
    let mut entries = Entries::sound();
    entries.0.push(Entry::new("driver/libextra.so", b"x"));
    assert_refused(&entries.bytes(), "unlisted");
    // A file that the manifest lists, but that belongs to no part of an archive.
    for path in [
        "driver/libcuda.so",
        "driver/libextra.so",
        "models/0/other",
        "workspace/crates/x",
    ] {
        let mut entries = Entries::sound();
        entries.add(path, b"x");
        assert_refused(&entries.bytes(), "manifest");
    }
    // A part whose file is missing.
    for path in [
        "driver/libcargo_vram_driver.so",
        "models/0/vram",
        "workspace/budgets.yaml",
    ] {
        let mut entries = Entries::sound();
        entries.manifest(|manifest| {
            manifest["files"]
                .as_array_mut()
                .unwrap()
                .retain(|file| file["path"] != path)
        });
        assert_refused(&entries.bytes(), "missing");
    }
}

#[test]
fn a_file_that_is_there_twice_is_refused() {
    for path in ["workspace/budgets.yaml", "manifest.json"] {
        let mut entries = Entries::sound();
        let again = entries.named(path).clone();
        entries.0.push(again);
        assert_refused(&entries.bytes(), "duplicate");
    }
    let mut entries = Entries::sound();
    entries.manifest(|manifest| {
        let files = manifest["files"].as_array_mut().unwrap();
        files.push(files[0].clone());
    });
    assert_refused(&entries.bytes(), "duplicate");
}

const ODD_PATHS: [&str; 14] = [
    "../outside",
    "driver/../../outside",
    "driver/..",
    "..",
    ".",
    "./driver/x",
    "driver/./x",
    "driver//x",
    "driver/",
    "/etc/passwd",
    "C:\\windows\\x",
    "C:x",
    "driver\\x",
    "driver/\u{1b}[31mx",
];

#[test]
fn a_path_that_leaves_the_folder_is_refused() {
    for path in ODD_PATHS {
        // The path of an added entry, of a renamed entry, or of a file in the manifest only.
        let mut entries = Entries::sound();
        entries.0.push(Entry::new(path, b"x"));
        assert_refused(&entries.bytes(), "path");
        let mut entries = Entries::sound();
        entries.named("driver/vram-survey").rename(path);
        assert_refused(&entries.bytes(), "path");
        let mut entries = Entries::sound();
        entries.add(path, b"x");
        assert_refused(&entries.bytes(), "path");
        let mut entries = Entries::sound();
        entries.manifest(|manifest| manifest["targets"][0]["folder"] = path.into());
        assert_refused(&entries.bytes(), "path");
    }
    let mut entries = Entries::sound();
    entries.0.push(Entry::new("", b"x"));
    assert_refused(&entries.bytes(), "path");
    let mut entries = Entries::sound();
    entries.manifest(|manifest| manifest["targets"][0]["executable"] = "driver/libcuda.so".into());
    assert_refused(&entries.bytes(), "manifest");
}

#[test]
fn a_file_that_is_a_folder_of_another_is_refused() {
    for (one, other) in [
        ("workspace/budgets.yaml", "workspace/budgets.yaml/x"),
        ("models/0/vram", "models/0/vram/x/y"),
        ("workspace", "workspace/x"),
    ] {
        let mut entries = Entries::sound();
        if one == "workspace" {
            entries.add(one, b"x");
        } else {
            entries.add(other, b"x");
        }
        assert_refused(&entries.bytes(), "overlap");
    }
    for folder in ["budgets.yaml", "budgets.yaml/below"] {
        let mut entries = Entries::sound();
        entries.manifest(|manifest| manifest["targets"][0]["folder"] = folder.into());
        assert_refused(&entries.bytes(), "overlap");
    }
}

#[test]
fn an_entry_that_is_no_plain_file_is_refused() {
    let kinds = [
        EntryType::Link,
        EntryType::Symlink,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Directory,
        EntryType::Continuous,
        EntryType::GNUSparse,
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
        EntryType::new(b'?'),
    ];
    for kind in kinds {
        let mut odd = Entry::of_kind("workspace/odd", kind);
        odd.change(|header| header.set_link_name_literal("/etc/passwd").unwrap());
        for at in [0, 1, 4, 6] {
            let mut entries = Entries::sound();
            entries.0.insert(at, odd.clone());
            assert_refused(&entries.bytes(), "kind");
        }
        // An expected file, but as another kind of entry.
        let mut entries = Entries::sound();
        entries
            .named("models/0/vram")
            .change(|header| header.set_entry_type(kind));
        assert_refused(&entries.bytes(), "kind");
    }
}

#[test]
fn an_entry_with_anything_unusual_in_its_header_is_refused() {
    let changes: [fn(&mut tar::Header); 9] = [
        |header| header.set_mode(0o4755),
        |header| header.set_mode(0o777),
        |header| header.set_mtime(1),
        |header| header.set_uid(1),
        |header| header.set_gid(1),
        |header| header.set_username("root").unwrap(),
        |header| header.set_link_name_literal("x").unwrap(),
        |header| header.as_mut_bytes()[511] = 1,
        |header| header.as_mut_bytes()[257..262].copy_from_slice(b"other"),
    ];
    for change in changes {
        for path in ["models/0/vram", "manifest.json"] {
            let mut entries = Entries::sound();
            entries.named(path).change(change);
            assert_refused(&entries.bytes(), "header");
        }
    }
    let mut entries = Entries::sound();
    entries.named("models/0/vram").header.as_mut_bytes()[148] ^= 1;
    assert_refused(&entries.bytes(), "header");
    // The manifest says whether a file is executable, so an entry with another mode is refused.
    let mut entries = Entries::sound();
    entries
        .named("workspace/budgets.yaml")
        .change(|header| header.set_mode(0o755));
    assert_refused(&entries.bytes(), "header");
}

#[test]
fn an_archive_for_another_machine_or_of_another_version_is_refused() {
    let with = |key: &str, value: Value| {
        let mut entries = Entries::sound();
        entries.manifest(|manifest| manifest[key] = value);
        entries.bytes()
    };
    assert_refused(&with("format", json!(1)), "format");
    assert_refused(&with("format", json!(u64::MAX)), "format");
    assert_refused(&with("tool", json!("0.0.1")), "tool");
    assert_refused(&with("tool", json!("\u{1b}[31m")), "tool");
    assert_refused(&with("driver", json!("another")), "driver");
    assert_refused(&with("protocol", json!(0)), "protocol");
    assert_refused(&with("glibc", json!("9.99")), "glibc");
    assert_refused(&with("glibc", json!("nine")), "manifest");
    for target in [
        "riscv64gc-unknown-linux-gnu",
        "x86_64-unknown-linux-musl",
        "aarch64-apple-darwin",
        "",
    ] {
        assert_refused(&with("target", json!(target)), "target");
    }
    let message = try_unpack(&with("glibc", json!("9.99"))).unwrap_err().to_string();
    assert!(
        message.contains("need glibc 9.99, but this machine has 2."),
        "{message}"
    );
    // The format is checked first: a newer format may have fields that this version does not know.
    let mut entries = Entries::sound();
    entries.0[0] = Entry::new("manifest.json", br#"{ "format": 7, "shape": "round" }"#);
    assert_refused(&entries.bytes(), "format");
}

#[test]
fn a_manifest_that_says_nothing_sensible_is_refused() {
    for text in [
        &b""[..],
        b"{",
        b"[]",
        b"\xff\xff",
        br#"{"format":2,"tool":1}"#,
        b"{\"format\":\"1\"}",
    ] {
        let mut entries = Entries::sound();
        entries.0[0] = Entry::new("manifest.json", text);
        assert_refused(&entries.bytes(), "manifest");
    }
    let deep = [b"{\"format\":".as_slice(), &[b'['; 100_000]].concat();
    let mut entries = Entries::sound();
    entries.0[0] = Entry::new("manifest.json", &deep);
    assert_refused(&entries.bytes(), "manifest");
    for (pointer, value) in [
        ("/targets/0/package", json!("\u{1b}]0;title\u{7}")),
        ("/targets/0/models/0/name", json!("a\nb")),
        ("/targets/0/name", json!("")),
        ("/targets/0/kind", json!("lib")),
        ("/commit", json!("\u{0}")),
        ("/budgets", json!("\r")),
        ("/files/0/bytes", json!(-1)),
        ("/files/0/executable", json!(false)),
        ("/files/3/executable", json!(true)),
    ] {
        let mut entries = Entries::sound();
        entries.manifest(|manifest| {
            // The manifest leaves out `executable` if it is false.
            if manifest.pointer(pointer).is_none() {
                manifest["files"][3]["executable"] = Value::Null;
            }
            *manifest.pointer_mut(pointer).unwrap() = value;
        });
        assert_refused(&entries.bytes(), "manifest");
    }
}

#[test]
fn an_archive_that_would_fill_the_disk_is_refused() {
    let mut entries = Entries::sound();
    entries.0[0].data = vec![b' '; (4 << 20) + 1];
    let size = entries.0[0].data.len() as u64;
    entries.0[0].change(|header| header.set_size(size));
    assert_refused(&entries.bytes(), "manifest_size");
    let with_sizes = |sizes: &[u64]| {
        let mut entries = Entries::sound();
        entries.manifest(|manifest| {
            for (number, size) in sizes.iter().enumerate() {
                manifest["files"][number]["bytes"] = json!(size);
            }
        });
        entries.bytes()
    };
    // The whole archive has less than a megabyte.
    assert_refused(&with_sizes(&[3 << 30]), "inflated");
    assert_refused(&with_sizes(&[(8 << 30) + 1]), "too_large");
    assert_refused(&with_sizes(&[5 << 30, 5 << 30]), "too_large");
    assert_refused(&with_sizes(&[u64::MAX, u64::MAX]), "too_large");
    let mut entries = Entries::sound();
    entries.manifest(|manifest| {
        let file = manifest["files"][0].clone();
        let many = (0..10_001).map(|number| {
            let mut file = file.clone();
            file["path"] = json!(format!("models/{number}/x"));
            file
        });
        manifest["files"] = many.collect();
    });
    assert_refused(&entries.bytes(), "too_many");
    // Folders of targets need no entries.
    let with_folders = |folders: &[String]| {
        let mut entries = Entries::sound();
        entries.manifest(|manifest| {
            let target = manifest["targets"][0].clone();
            let targets = folders.iter().map(|folder| {
                let mut target = target.clone();
                target["folder"] = json!(folder);
                target
            });
            manifest["targets"] = targets.collect();
        });
        entries.bytes()
    };
    let deep = |number: u32| format!("{number}/{}b", "a/".repeat(100));
    assert_refused(&with_folders(&(0..120).map(deep).collect::<Vec<_>>()), "too_many");
    assert_refused(&with_folders(&["a/".repeat(200) + "b"]), "path");
    assert_refused(&with_folders(&["a".repeat(300)]), "path");
    // An entry whose header says a size that differs from the manifest's.
    for size in [1, 48, 1 << 30, (1 << 33) - 1] {
        let mut entries = Entries::sound();
        entries
            .named("workspace/budgets.yaml")
            .change(|header| header.set_size(size));
        assert_refused(&entries.bytes(), "size");
    }
    // A frame that needs more memory than a decoder allows.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(28).unwrap();
    std::io::Write::write_all(&mut encoder, &sound_tar()).unwrap();
    assert_refused(&encoder.finish().unwrap(), "damaged");
}

#[test]
fn an_archive_is_unpacked_into_an_empty_folder_alone() {
    let folder = tempfile::tempdir().unwrap();
    let into = camino::Utf8Path::from_path(folder.path()).unwrap();
    let file = into.join("small.tar.zst");
    std::fs::write(&file, sound()).unwrap();
    let error = archive::unpack(file.as_std_path(), into).unwrap_err();
    assert!(matches!(error, ArchiveError::NotEmpty(_)), "{error}");
    assert_eq!(std::fs::read_dir(into).unwrap().count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_make_another_archive(flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4)) {
        let mut bytes = sound().to_vec();
        for (at, mask) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        is_the_same_or_refused(&bytes);
    }

    #[test]
    fn flipped_bytes_in_a_sound_frame_never_make_another_archive(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        in_headers in any::<bool>(),
    ) {
        let mut tar = sound_tar();
        for (at, mask) in flips {
            // Make half of the changes in the manifest and the first headers, which decide most.
            let at = at.index(if in_headers { 4096 } else { tar.len() });
            tar[at] ^= mask;
        }
        tar.truncate(cut.map_or(tar.len(), |cut| cut.index(tar.len())));
        is_the_same_or_refused(&compress(&tar));
    }
}

/// Asserts that bytes are refused or unpack to the original files. (Nobody can verify the models and commits in a
/// manifest.)
fn is_the_same_or_refused(bytes: &[u8]) {
    let Ok((_folder, unpacked)) = try_unpack(bytes) else {
        return;
    };
    let (_other, expected) = try_unpack(sound()).unwrap();
    assert_eq!(unpacked.manifest.total(), expected.manifest.total());
    let read = |path: camino::Utf8PathBuf| std::fs::read(path).unwrap();
    assert_eq!(read(unpacked.budgets().unwrap()), read(expected.budgets().unwrap()));
    assert_eq!(
        read(unpacked.built().remove(0).executable),
        std::fs::read(tiny()).unwrap()
    );
    assert_eq!(
        std::fs::read(&unpacked.driver.library).unwrap(),
        std::fs::read(&expected.driver.library).unwrap()
    );
}

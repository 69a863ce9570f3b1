//! What is asked of an executable: what machine it is for, which glibc it needs, and to be smaller.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, U32, U64, pod};
use serde::{Deserialize, Serialize};

/// A version of glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glibc {
    major: u32,
    minor: u32,
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Glibc {
    type Err = String;

    /// `2.34`, or `2.2.5`, whose last part is of no interest.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('.').map(str::parse);
        match (parts.next(), parts.next(), parts.all(|part| part.is_ok())) {
            (Some(Ok(major)), Some(Ok(minor)), true) => Ok(Self { major, minor }),
            _ => Err(format!("`{}` is no version of glibc", text.escape_debug())),
        }
    }
}

impl TryFrom<String> for Glibc {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Glibc> for String {
    fn from(glibc: Glibc) -> Self {
        glibc.to_string()
    }
}

/// What an executable or a shared library says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The target triple: one of those that models run on.
    pub target: &'static str,
    /// The newest glibc of which it needs something.
    pub needed: Option<Glibc>,
    /// The newest glibc of which it has everything: only glibc itself does.
    pub offered: Option<Glibc>,
}

/// Reads an executable or a shared library; none where it is neither, or for a machine that models do not run on.
#[must_use]
pub fn facts(data: &[u8]) -> Option<Facts> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let target = match (header.e_machine(endian), endian) {
        (elf::EM_X86_64, Endianness::Little) => "x86_64-unknown-linux-gnu",
        (elf::EM_AARCH64, Endianness::Little) => "aarch64-unknown-linux-gnu",
        _ => return None,
    };
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    let highest = |names: Vec<&[u8]>| names.into_iter().filter_map(glibc).max();
    Some(Facts {
        target,
        needed: highest(needed(&sections, endian, data).unwrap_or_default()),
        offered: highest(offered(&sections, endian, data).unwrap_or_default()),
    })
}

type Sections<'data> = SectionTable<'data, FileHeader64<Endianness>>;

/// The names of the versions that are needed of other libraries.
fn needed<'data>(sections: &Sections<'data>, endian: Endianness, data: &'data [u8]) -> Option<Vec<&'data [u8]>> {
    let (needs, link) = sections.gnu_verneed(endian, data).ok()??;
    let strings = sections.strings(endian, data, link).ok()?;
    let mut names = Vec::new();
    for (_, versions) in needs.filter_map(Result::ok) {
        let versions = versions.filter_map(Result::ok);
        names.extend(versions.filter_map(|version| version.name(endian, strings).ok()));
    }
    Some(names)
}

/// The names of the versions that are there for others.
fn offered<'data>(sections: &Sections<'data>, endian: Endianness, data: &'data [u8]) -> Option<Vec<&'data [u8]>> {
    let (definitions, link) = sections.gnu_verdef(endian, data).ok()??;
    let strings = sections.strings(endian, data, link).ok()?;
    let mut names = Vec::new();
    for (_, versions) in definitions.filter_map(Result::ok) {
        let versions = versions.filter_map(Result::ok);
        names.extend(versions.filter_map(|version| version.name(endian, strings).ok()));
    }
    Some(names)
}

fn glibc(name: &[u8]) -> Option<Glibc> {
    std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.parse().ok()
}

/// The file without what only debuggers read. Functions keep their names: what a panic's stack is recognised by.
///
/// What is loaded stays where it is, to the byte. Behind it, the sections that stay move up, and those that go leave
/// an empty entry, so that no number of a section changes. A file that is laid out in another way is given back whole.
#[must_use]
pub fn strip(data: &[u8]) -> Cow<'_, [u8]> {
    stripped(data).map_or(Cow::Borrowed(data), Cow::Owned)
}

fn stripped(data: &[u8]) -> Option<Vec<u8>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let mut entries: Vec<SectionHeader64<Endianness>> = sections.iter().copied().collect();
    let is_debug = |section: &SectionHeader64<Endianness>| {
        let name = sections.section_name(endian, section).unwrap_or_default();
        [&b".debug_"[..], b".zdebug_", b".gnu_debug", b".rela.debug_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let segments = header.program_headers(endian, data).ok()?.iter();
    let of_segments = segments.map(|segment| segment.p_offset(endian).checked_add(segment.p_filesz(endian)));
    let headers_end = header
        .e_phoff(endian)
        .checked_add(u64::from(header.e_phentsize(endian)) * u64::from(header.e_phnum(endian)));
    let loaded_end = of_segments
        .chain([headers_end])
        .try_fold(0, |end, next| next.map(|next| next.max(end)))?;
    let loaded_end = usize::try_from(loaded_end).ok()?;
    let mut out = data.get(..loaded_end)?.to_vec();
    let mut removed = false;
    for entry in entries.iter_mut().skip(1) {
        let occupies = entry.sh_type(endian) != elf::SHT_NOBITS && entry.sh_size(endian) > 0;
        let start = usize::try_from(entry.sh_offset(endian)).ok()?;
        let size = usize::try_from(entry.sh_size(endian)).ok()?;
        let is_loaded = entry.sh_flags(endian).contains(elf::SHF_ALLOC);
        if is_loaded || !occupies {
            continue;
        }
        if start < loaded_end {
            return None;
        }
        if is_debug(entry) {
            *entry = empty(endian);
            removed = true;
            continue;
        }
        pad(&mut out, usize::try_from(entry.sh_addralign(endian)).ok()?)?;
        entry.sh_offset = U64::new(endian, out.len() as u64);
        out.extend_from_slice(data.get(start..start.checked_add(size)?)?);
    }
    if !removed {
        return None;
    }
    pad(&mut out, size_of::<u64>())?;
    let table = out.len() as u64;
    out.extend_from_slice(pod::bytes_of_slice(&entries));
    let (header, _) = pod::from_bytes_mut::<FileHeader64<Endianness>>(&mut out).ok()?;
    header.e_shoff = U64::new(endian, table);
    Some(out)
}

/// An entry that is none.
fn empty(endian: Endianness) -> SectionHeader64<Endianness> {
    let (word, long) = (U32::new(endian, 0), U64::new(endian, 0));
    SectionHeader64 {
        sh_name: word,
        sh_type: U32::new(endian, elf::SHT_NULL),
        sh_flags: U64::new(endian, elf::SectionFlags(0)),
        sh_addr: long,
        sh_offset: long,
        sh_size: long,
        sh_link: word,
        sh_info: word,
        sh_addralign: long,
        sh_entsize: long,
    }
}

fn pad(out: &mut Vec<u8>, align: usize) -> Option<()> {
    let length = out.len().checked_next_multiple_of(align.clamp(1, 4096))?;
    out.resize(length, 0);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text: &str| text.parse::<Glibc>().unwrap();
        assert!(version("2.34") > version("2.4"));
        assert_eq!(version("2.2.5"), version("2.2"));
        for wrong in ["", "2", "PRIVATE", "2.x", "2.3.y", "-1.2"] {
            assert!(wrong.parse::<Glibc>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_executable_has_no_facts_and_is_left_as_it_is() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(facts(&own).is_some());
        for data in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &own[..63], &own[..200]] {
            assert_eq!(facts(data), None);
            assert_eq!(strip(data), data);
        }
    }

    #[test]
    fn a_damaged_executable_is_read_without_a_panic() {
        let mut own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let length = own.len();
        let table = length - 64 * 8;
        // The header, the segments' table, and the last entries of the sections' table: every byte, one at a time.
        for at in (0..1024).chain(table..length) {
            let byte = std::mem::replace(&mut own[at], 0xff);
            let _ = facts(&own);
            let _ = strip(&own[..own.len().min(64 * 1024)]);
            own[at] = byte;
        }
    }
}

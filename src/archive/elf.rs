//! Reads the target and the required glibc of an executable, and strips its debug information.

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

    /// Parses `2.34`, or `2.2.5`, whose last part is ignored.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('.').map(str::parse);
        match (parts.next(), parts.next(), parts.all(|part| part.is_ok())) {
            (Some(Ok(major)), Some(Ok(minor)), true) => Ok(Self { major, minor }),
            _ => Err(format!("`{}` is not a glibc version", text.escape_debug())),
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

/// The target and the glibc versions of an executable or a shared library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfFacts {
    /// The target triple, one of those that models run on.
    pub target: &'static str,
    /// The newest glibc version that it needs.
    pub needed: Option<Glibc>,
    /// The newest glibc version that it provides. Only glibc itself has one.
    pub offered: Option<Glibc>,
}

/// Reads the facts of an executable or a shared library. Returns `None` for other files and for unsupported machines.
#[must_use]
pub fn facts(data: &[u8]) -> Option<ElfFacts> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let target = match (header.e_machine(endian), endian) {
        (elf::EM_X86_64, Endianness::Little) => "x86_64-unknown-linux-gnu",
        (elf::EM_AARCH64, Endianness::Little) => "aarch64-unknown-linux-gnu",
        _ => return None,
    };
    // Object files and core dumps are ELF files, too.
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    let highest = |names: Vec<&[u8]>| names.into_iter().filter_map(glibc).max();
    Some(ElfFacts {
        target,
        // A file without this section needs no particular version.
        needed: highest(needed(&sections, endian, data).unwrap_or_default()),
        offered: highest(offered(&sections, endian, data).unwrap_or_default()),
    })
}

type Sections<'data> = SectionTable<'data, FileHeader64<Endianness>>;

/// Returns the names of the symbol versions that the file needs from other libraries.
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

/// Returns the names of the symbol versions that the file provides.
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
    // `GLIBC_PRIVATE` has no number, and is left out here.
    std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.parse().ok()
}

/// Returns the file without its debug sections. Functions keep their names, which identify the stack of a panic.
///
/// All loaded bytes keep their positions. Behind them, the remaining sections move up. A removed section leaves an
/// empty entry, so that section numbers stay the same. A file with another layout, or without debug sections, is
/// returned unchanged.
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
    // Whatever a program header points at is loaded by its position, so everything up to there stays.
    // See docs/design/archives.md.
    let segments = header.program_headers(endian, data).ok()?.iter();
    let of_segments = segments.map(|segment| segment.p_offset(endian).checked_add(segment.p_filesz(endian)));
    let headers_end = header
        .e_phoff(endian)
        .checked_add(u64::from(header.e_phentsize(endian)) * u64::from(header.e_phnum(endian)));
    let loaded_end = of_segments
        .chain([headers_end])
        .try_fold(0, |end, next| next.map(|next| next.max(end)))?;
    let loaded_end = usize::try_from(loaded_end).ok()?;
    // Behind the loaded bytes there is only what tools read: symbols, names and debug sections.
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
        // An unusual layout. An archive with debug sections is better than a program that does not run.
        if start < loaded_end {
            return None;
        }
        if is_debug(entry) {
            // Symbols name sections by number. Without an empty entry, every later number would be wrong.
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

/// Makes an empty section entry.
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
    // A damaged program may name any alignment. Unlimited, it would fill the memory with zeros.
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
}

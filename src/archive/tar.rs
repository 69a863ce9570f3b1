//! The tar file: how an entry is written, and how nothing else is read.
//!
//! The tar crate's reader takes an end of file for the end of the archive, and follows extensions (long names, links,
//! sparse files) that an archive of ours never has. So entries are read here, by comparing.

use std::io::{ErrorKind, Read};

use tar::{EntryType, Header};

use super::error::Refusal;
use super::manifest::path_problem;
use crate::bytes::Bytes;

/// The unit of a tar file.
pub(super) const BLOCK: usize = 512;
const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

/// The header of an entry: all that a file is known by is its path, its length, and whether it is a program.
///
/// None where the path is too long for it.
pub(super) fn header(path: &str, bytes: Bytes, executable: bool) -> Option<Header> {
    let mut header = Header::new_ustar();
    header.set_path(path).ok()?;
    header.set_size(bytes.0);
    header.set_mode(if executable { PROGRAM } else { DATA });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    Some(header)
}

/// The bytes of an entry and of what fills its last block.
pub(super) fn padded(bytes: Bytes) -> u64 {
    bytes.0.next_multiple_of(BLOCK as u64)
}

/// The entries, one after the other.
pub(super) struct Entries<R> {
    stream: R,
}

/// One entry, as far as it is read: its header.
pub(super) struct Entry {
    header: Header,
    /// Its path, looked at.
    pub(super) path: String,
    /// Its length.
    pub(super) bytes: Bytes,
}

impl Entry {
    /// Sees that nothing but path, length and kind of the file is told.
    pub(super) fn expect(&self, executable: bool) -> Result<(), Refusal> {
        let expected = header(&self.path, self.bytes, executable);
        if expected.is_some_and(|expected| expected.as_bytes() == self.header.as_bytes()) {
            Ok(())
        } else {
            Err(Refusal::Header(self.path.clone()))
        }
    }
}

impl<R: Read> Entries<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream }
    }

    /// What was read from.
    pub(super) fn into_inner(self) -> R {
        self.stream
    }

    /// The next entry; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Refusal> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block == [0; BLOCK] {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        if let Some(kind) = unusual(header.entry_type()) {
            return Err(Refusal::Kind { path: name, kind });
        }
        let path = match String::from_utf8(header.path_bytes().into_owned()) {
            Ok(path) => path,
            Err(_) => return Err(Refusal::Header(name)),
        };
        if let Some(why) = path_problem(&path) {
            return Err(Refusal::Path { path, why });
        }
        let Ok(bytes) = header.entry_size().map(Bytes) else {
            return Err(Refusal::Header(path));
        };
        Ok(Some(Entry { header, path, bytes }))
    }

    /// The bytes of an entry, in pieces.
    pub(super) fn contents<E: From<Refusal>>(
        &mut self,
        bytes: Bytes,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; 64 * 1024];
        let mut left = bytes.0;
        while left > 0 {
            let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let piece = &mut buffer[..length];
            self.fill(piece)?;
            take(piece)?;
            left -= length as u64;
        }
        let mut rest = [0; BLOCK];
        let rest = &mut rest[..(bytes.0.wrapping_neg() % BLOCK as u64) as usize];
        self.fill(rest)?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Refusal::Damaged("an entry is longer than it says".into()).into());
        }
        Ok(())
    }

    /// Sees that the end, of which [`Self::next`] read a half, is the end.
    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block != [0; BLOCK] {
            return Err(Refusal::Damaged("an entry follows its end".into()));
        }
        // Reading on makes the decoder see the frame's checksum.
        match self.stream.read(&mut [0]).map_err(refusal)? {
            0 => Ok(()),
            _ => Err(Refusal::Trailing),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Refusal> {
        self.stream.read_exact(buffer).map_err(refusal)
    }
}

fn refusal(error: std::io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::UnexpectedEof => Refusal::CutShort,
        _ => Refusal::Damaged(error.to_string()),
    }
}

fn unusual(kind: EntryType) -> Option<&'static str> {
    Some(match kind {
        EntryType::Regular => return None,
        EntryType::Link => "a hard link",
        EntryType::Symlink => "a link",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a pipe",
        EntryType::Directory => "a folder",
        EntryType::GNUSparse => "a file with holes",
        EntryType::GNULongName | EntryType::GNULongLink => "a long name",
        EntryType::XHeader | EntryType::XGlobalHeader => "a header of more words",
        _ => "of no known kind",
    })
}

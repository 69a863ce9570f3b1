//! Writes the headers of tar entries, and reads only entries with such headers.
//!
//! The tar crate's reader accepts an end of file as the end of the archive, and follows extensions (long names, links,
//! sparse files) that our archives never have. So this module reads entries itself, and compares each header with the
//! expected one.

use std::io::{ErrorKind, Read};

use tar::{EntryType, Header};

use super::error::ArchiveRefusal;
use super::manifest::path_problem;
use crate::bytes::Bytes;

/// The block size of a tar file in bytes.
pub(super) const BLOCK: usize = 512;
const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

/// Returns the header of an entry, which depends only on its path, its length, and whether it is a program.
///
/// Returns `None` if the path is too long for a header.
pub(super) fn header(path: &str, bytes: Bytes, executable: bool) -> Option<Header> {
    let mut header = Header::new_ustar();
    header.set_path(path).ok()?;
    header.set_size(bytes.0);
    header.set_mode(if executable { PROGRAM } else { DATA });
    // No owner and no time: the same files must give the same bytes.
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    Some(header)
}

/// Returns the length of an entry with the padding of its last block.
pub(super) fn padded(bytes: Bytes) -> u64 {
    bytes.0.next_multiple_of(BLOCK as u64)
}

/// Reads the entries of a tar file in their order.
pub(super) struct TarEntries<R> {
    stream: R,
}

/// An entry whose header was read, but not its content.
pub(super) struct TarEntry {
    header: Header,
    /// The checked path.
    pub(super) path: String,
    /// The length of the content.
    pub(super) bytes: Bytes,
}

impl TarEntry {
    /// Checks that the header is exactly the one that [`header`] returns for this path and length.
    pub(super) fn expect(&self, executable: bool) -> Result<(), ArchiveRefusal> {
        let expected = header(&self.path, self.bytes, executable);
        if expected.is_some_and(|expected| expected.as_bytes() == self.header.as_bytes()) {
            Ok(())
        } else {
            Err(ArchiveRefusal::Header(self.path.clone()))
        }
    }
}

impl<R: Read> TarEntries<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream }
    }

    /// Returns the stream.
    pub(super) fn into_inner(self) -> R {
        self.stream
    }

    /// Reads the next header. Returns `None` at the end of the archive.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>, ArchiveRefusal> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block == [0; BLOCK] {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        // Before the path: the entry of a long name has a path
        // of its own, and the refusal would name only that.
        if let Some(kind) = unusual(header.entry_type()) {
            return Err(ArchiveRefusal::Kind { path: name, kind });
        }
        let path = match String::from_utf8(header.path_bytes().into_owned()) {
            Ok(path) => path,
            Err(_) => return Err(ArchiveRefusal::Header(name)),
        };
        if let Some(why) = path_problem(&path) {
            return Err(ArchiveRefusal::Path { path, why });
        }
        let Ok(bytes) = header.entry_size().map(Bytes) else {
            return Err(ArchiveRefusal::Header(path));
        };
        Ok(Some(TarEntry { header, path, bytes }))
    }

    /// Reads the content of an entry, and passes it to `take` in pieces.
    pub(super) fn contents<E: From<ArchiveRefusal>>(
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
        // No hash covers the padding. So anything but zeros could be changed unnoticed.
        let mut rest = [0; BLOCK];
        let rest = &mut rest[..(bytes.0.wrapping_neg() % BLOCK as u64) as usize];
        self.fill(rest)?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(ArchiveRefusal::Damaged("the padding of an entry is not zero".into()).into());
        }
        Ok(())
    }

    /// Checks the second half of the end marker, of which [`Self::next`] read the first half, and that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), ArchiveRefusal> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block != [0; BLOCK] {
            return Err(ArchiveRefusal::Damaged("an entry follows the end marker".into()));
        }
        // One more read makes the decoder check the frame's checksum.
        match self.stream.read(&mut [0]).map_err(refusal)? {
            0 => Ok(()),
            _ => Err(ArchiveRefusal::Trailing),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveRefusal> {
        self.stream.read_exact(buffer).map_err(refusal)
    }
}

fn refusal(error: std::io::Error) -> ArchiveRefusal {
    match error.kind() {
        // Most damaged archives are incomplete downloads, and the help is to copy them again.
        ErrorKind::UnexpectedEof => ArchiveRefusal::CutShort,
        _ => ArchiveRefusal::Damaged(error.to_string()),
    }
}

fn unusual(kind: EntryType) -> Option<&'static str> {
    Some(match kind {
        EntryType::Regular => return None,
        EntryType::Link => "a hard link",
        EntryType::Symlink => "a symbolic link",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a pipe",
        EntryType::Directory => "a folder",
        EntryType::GNUSparse => "a sparse file",
        EntryType::GNULongName | EntryType::GNULongLink => "a long-name extension",
        EntryType::XHeader | EntryType::XGlobalHeader => "an extended header",
        _ => "of an unknown kind",
    })
}

//! Writes files so that all of it can be taken back.

use camino::{Utf8Path, Utf8PathBuf};

/// What was done so far, which is taken back when this is dropped, unless it is kept.
#[derive(Default)]
pub(super) struct Undo {
    kept: bool,
    /// Each file, with what was in it before; nothing where it was not there.
    before: Vec<(Utf8PathBuf, Option<Vec<u8>>)>,
    /// Folders that were not there, the outer ones first.
    made: Vec<Utf8PathBuf>,
}

impl Undo {
    /// Remembers a file that another program may change.
    pub(super) fn remember(&mut self, path: &Utf8Path) -> std::io::Result<()> {
        if self.before.iter().any(|(known, _)| known == path) {
            return Ok(());
        }
        let before = path.exists().then(|| std::fs::read(path)).transpose()?;
        self.before.push((path.to_owned(), before));
        Ok(())
    }

    /// Writes a file, and makes the folders that it is in.
    pub(super) fn put(&mut self, path: &Utf8Path, content: &str) -> std::io::Result<()> {
        let folders = path.ancestors().skip(1).take_while(|folder| !folder.exists());
        let missing: Vec<_> = folders.map(Utf8Path::to_owned).collect();
        for folder in missing.into_iter().rev() {
            std::fs::create_dir(&folder)?;
            self.made.push(folder);
        }
        self.remember(path)?;
        std::fs::write(path, content)
    }

    /// Keeps everything, and names the files that are not as they were, in the order in which they were written.
    pub(super) fn keep(mut self) -> Vec<Utf8PathBuf> {
        self.kept = true;
        let changed = self
            .before
            .iter()
            .filter(|(path, before)| !is_same(path, before.as_deref()));
        changed.map(|(path, _)| path.clone()).collect()
    }
}

fn is_same(path: &Utf8Path, before: Option<&[u8]>) -> bool {
    std::fs::read(path).ok().as_deref() == before
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for (path, before) in self.before.drain(..).rev() {
            if is_same(&path, before.as_deref()) {
                continue;
            }
            // What cannot be taken back could not be written either.
            let _ = match before {
                Some(before) => std::fs::write(&path, before),
                None => std::fs::remove_file(&path),
            };
        }
        for folder in self.made.drain(..).rev() {
            let _ = std::fs::remove_dir(&folder);
        }
    }
}

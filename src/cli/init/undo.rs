//! Writes files so that all changes can be undone.

use camino::{Utf8Path, Utf8PathBuf};

/// The changes so far. Drop undoes them, unless they are kept.
#[derive(Default)]
pub(super) struct Undo {
    kept: bool,
    /// Each file with its previous content; `None` if the file did not exist.
    before: Vec<(Utf8PathBuf, Option<Vec<u8>>)>,
    /// The folders that were created, outer folders first.
    made: Vec<Utf8PathBuf>,
}

impl Undo {
    /// Remembers the content of a file before this or another program changes it.
    pub(super) fn remember(&mut self, path: &Utf8Path) -> std::io::Result<()> {
        // A second write must not take the first one's text for the user's.
        if self.before.iter().any(|(known, _)| known == path) {
            return Ok(());
        }
        let before = path.exists().then(|| std::fs::read(path)).transpose()?;
        self.before.push((path.to_owned(), before));
        Ok(())
    }

    /// Writes a file, and creates its folders.
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

    /// Keeps all changes. Returns the files that differ from before, in the order in which they were written.
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
            // Ignore errors: a file that cannot be restored could not be written either.
            let _ = match before {
                Some(before) => std::fs::write(&path, before),
                None => std::fs::remove_file(&path),
            };
        }
        for folder in self.made.drain(..).rev() {
            // `remove_dir` keeps a folder into which somebody else has put a file meanwhile.
            let _ = std::fs::remove_dir(&folder);
        }
    }
}

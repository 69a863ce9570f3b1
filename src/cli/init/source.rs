//! Where a project takes the crate `cargo-vram` from.

use camino::{Utf8Path, Utf8PathBuf};
use toml_edit::InlineTable;

/// Where the crate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// In a folder that was named.
    Named(Utf8PathBuf),
    /// In the folder that this program was built from.
    Built(Utf8PathBuf),
    /// In the registry that this program was installed from.
    Registry,
    /// In a git repository: at a commit, or at the tag of this version.
    Git { url: String, commit: Option<String> },
}

impl Source {
    /// The named folder; else where this program was built, if that still has this version of the crate; else its
    /// repository. Nothing where none is known.
    pub(super) fn find(named: Option<&Utf8Path>, built: &Utf8Path, repository: &str) -> Option<Self> {
        if let Some(folder) = named {
            return Some(Self::Named(folder.to_owned()));
        }
        let git = |commit| {
            (!repository.is_empty()).then(|| Self::Git {
                url: repository.to_owned(),
                commit,
            })
        };
        if !is_this_crate(built) {
            return git(None);
        }
        // Cargo marks the folders of its own cache so, which it may empty at any time.
        let cached = built.ancestors().find(|folder| folder.join(".cargo-ok").is_file());
        match cached {
            None => Some(Self::Built(built.to_owned())),
            Some(folder) if folder.join(".git").exists() => git(commit_of(folder)),
            Some(_) => Some(Self::Registry),
        }
    }

    /// The dependency's keys, seen from a manifest.
    pub(super) fn keys(&self, manifest: &Utf8Path) -> InlineTable {
        let mut keys = InlineTable::new();
        match self {
            Self::Named(folder) => {
                // Cargo takes a path from the manifest's folder, people give it from where they are. What they give as
                // relative is so on other machines, too.
                let whole = |path: &Utf8Path| path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned());
                let from = manifest.parent().map(whole).filter(|_| folder.is_relative());
                let relative = from.and_then(|from| pathdiff::diff_utf8_paths(whole(folder), from));
                let folder = relative.unwrap_or_else(|| whole(folder));
                keys.insert("path", folder.as_str().into());
            }
            Self::Built(folder) => {
                keys.insert("path", folder.as_str().into());
            }
            Self::Registry => {
                keys.insert("version", env!("CARGO_PKG_VERSION").into());
            }
            Self::Git { url, commit } => {
                keys.insert("git", url.as_str().into());
                match commit {
                    Some(commit) => keys.insert("rev", commit.as_str().into()),
                    None => keys.insert("tag", concat!("v", env!("CARGO_PKG_VERSION")).into()),
                };
            }
        }
        keys
    }
}

/// Whether a folder has this crate, in this version: a tool and a model of two versions do not understand each other.
fn is_this_crate(folder: &Utf8Path) -> bool {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let Ok(manifest) = toml_edit::Document::parse(text) else {
        return false;
    };
    let is = |key: &str, value: &str| {
        let package = manifest.get("package").and_then(|package| package.get(key));
        package.and_then(toml_edit::Item::as_str) == Some(value)
    };
    is("name", env!("CARGO_PKG_NAME")) && is("version", env!("CARGO_PKG_VERSION"))
}

/// The commit of a checkout that Cargo made.
fn commit_of(checkout: &Utf8Path) -> Option<String> {
    let output = std::process::Command::new("git")
        .args(["-C", checkout.as_str(), "rev-parse", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://example.org/somebody/cargo-vram";

    fn folder(version: &str) -> (tempfile::TempDir, Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::try_from(folder.path().to_owned()).unwrap();
        let manifest = format!("[package]\nname = \"cargo-vram\"\nversion = \"{version}\"\n");
        std::fs::write(path.join("Cargo.toml"), manifest).unwrap();
        (folder, path)
    }

    #[test]
    fn the_folder_that_the_tool_was_built_from_is_taken_while_it_has_this_version() {
        let (_held, this) = folder(env!("CARGO_PKG_VERSION"));
        assert_eq!(Source::find(None, &this, ""), Some(Source::Built(this.clone())));
        assert_eq!(Source::find(None, &this, URL), Some(Source::Built(this.clone())));
        let named = Utf8Path::new("../cargo-vram");
        assert_eq!(
            Source::find(Some(named), &this, URL),
            Some(Source::Named(named.to_owned()))
        );
        let (_held, other) = folder("99.0.0");
        assert_eq!(Source::find(None, &other, ""), None);
    }

    #[test]
    fn the_repository_is_next_and_without_one_nothing_is_known() {
        let gone = Utf8Path::new("/nowhere/cargo-vram");
        assert_eq!(Source::find(None, gone, ""), None);
        let source = Source::find(None, gone, URL).unwrap();
        assert_eq!(
            source.keys(Utf8Path::new("/x/Cargo.toml")).to_string(),
            format!("{{ git = \"{URL}\", tag = \"v{}\" }}", env!("CARGO_PKG_VERSION"))
        );
    }

    #[test]
    fn a_folder_of_cargos_own_cache_is_no_path_for_a_manifest() {
        let (_held, this) = folder(env!("CARGO_PKG_VERSION"));
        std::fs::write(this.join(".cargo-ok"), "").unwrap();
        assert_eq!(Source::find(None, &this, URL), Some(Source::Registry));
        std::fs::create_dir(this.join(".git")).unwrap();
        let git = Source::Git {
            url: URL.to_owned(),
            commit: None,
        };
        assert_eq!(Source::find(None, &this, URL), Some(git));
        assert_eq!(Source::find(None, &this, ""), None);
    }
}

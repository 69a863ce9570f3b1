//! Commands for users to copy into a shell. They contain only names that a shell reads as plain words.

use std::collections::BTreeSet;

/// The most models that a command names; with more models, the command has no `-m` and accepts all.
const NAMED: usize = 8;
/// The longest name, in bytes, that a command may contain.
const LONGEST: usize = 100;

/// Builds a `cargo vram bless` command for these models. The command accepts all models if a name is not plain or if
/// there are more than [`NAMED`] models. `rest` is appended to the command.
pub(in crate::render) fn bless(models: &BTreeSet<String>, rest: &str) -> String {
    // `-m` for only some of the models would leave the others unaccepted, so it is all of them or no `-m`.
    let named = models.len() <= NAMED && models.iter().all(|model| is_plain(model));
    let selection: String = match named {
        true => models.iter().map(|model| format!(" -m {model}")).collect(),
        false => String::new(),
    };
    format!("cargo vram bless{selection}{rest}\n")
}

/// Whether a shell reads the name as one word, and `-m` reads it as a name and not as a glob or an option.
pub(in crate::render) fn is_plain(model: &str) -> bool {
    // A list of what is plain: a list of what shells interpret would have gaps.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    model.len() <= LONGEST && model.starts_with(|c: char| c.is_ascii_alphanumeric()) && model.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn a_name_that_a_shell_would_run_is_in_no_command() {
        assert!(is_plain("zoo/resnet18-b128"));
        for model in ["a/b; rm -rf ~", "a/$(b)", "a/`b`", "-m/b", "a/*", "a/b\nc", "a/'b'", ""] {
            assert!(!is_plain(model), "{model}");
        }
    }
}

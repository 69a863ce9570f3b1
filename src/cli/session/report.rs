//! Assembles the report of a command.

use crate::cli::options::Running;
use crate::cli::session::context::Context;
use crate::cli::session::models::Models;
use crate::cli::session::prepared::Prepared;
use crate::cli::session::recordings::own_recordings;
use crate::driver::{self};
use crate::report::{REPORT_VERSION, Report, Run, Status, Tool, WrittenBy};

/// Assembles the report of a command. Verdicts are added later.
pub(in crate::cli) fn report(
    command: Option<WrittenBy>,
    context: &Context<'_>,
    models: &Models,
    runs: Vec<Run>,
) -> Report {
    let &Context { prepared, running, .. } = context;
    let (commit, dirty) = prepared.source.commit();
    Report {
        version: REPORT_VERSION,
        command,
        tool: Tool {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            fingerprint: fingerprint(prepared, running).into(),
        },
        commit: commit.map(Into::into),
        dirty,
        partition: running.partition.map(|partition| partition.to_string().into()),
        expected: models.expected.iter().map(|model| model.as_str().into()).collect(),
        expected_verdicts: Vec::new(),
        status: Status::Pass,
        runs,
        verdicts: Vec::new(),
        skipped: Vec::new(),
        base: None,
        problems: models.problems.clone(),
        growth: Vec::new(),
    }
}

/// Returns a hash of everything except the model that an estimate depends on.
///
/// This includes the user's own GPU profiles and recordings.
fn fingerprint(prepared: &Prepared, running: &Running) -> String {
    use sha2::{Digest, Sha256};
    let mut all = vec![
        env!("CARGO_PKG_VERSION").to_owned(),
        driver::fingerprint(),
        crate::gpu::fingerprint(),
        crate::recording::fingerprint(),
    ];
    // Only the user's GPUs: a hash of the built-in ones is in it already. See docs/design/baseline.md.
    let gpus = prepared.budgets.iter().flat_map(|budgets| budgets.gpu_profiles.keys());
    let gpus = gpus.filter_map(|id| prepared.profiles.find(id));
    all.extend(gpus.map(|gpu| format!("{} {}", gpu.id, gpu.fingerprint())));
    // Recordings that cannot be read have already ended the command.
    let recordings = own_recordings(running).ok().flatten();
    all.extend(recordings.map(|own| own.fingerprint()));
    let all = all.join(" ");
    Sha256::digest(all)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

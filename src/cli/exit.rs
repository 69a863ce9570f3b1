//! Every exit code, with its sentence.

use std::process::ExitCode;

use crate::report::{ErrorCode, Report, Status};

/// How a command ends. Where several apply, the highest in the order of `rank` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Within budget (warnings allowed), or nothing to judge.
    Success,
    /// Over budget, regressed, leaking or out of memory; `check`, `merge`, `diff --fail` and `bless --check` alone.
    OverBudget,
    /// Could not complete: a build failed, a model died or timed out, a GPU is unusable.
    Incomplete,
    /// Command line, configuration or versions unusable.
    Unusable,
    /// A signal of this number stopped the command, as shells have it.
    Interrupted(u8),
}

/// The exit codes, as `--help` shows them: a literal, to be put below a command's examples.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0    within budget (warnings allowed)
  100  over budget, regressed, leaking, out of memory, or a limit loosened with --deny-edits
       (never `estimate` and `measure`)
  101  could not complete: a build failed; a model died, timed out, did not do its steps or
       differed from run to run; a GPU is unusable; a result could not be written
  2    command line, configuration or versions unusable
  130  stopped by SIGINT (Ctrl-C); 143 by SIGTERM"
    };
}
pub(crate) use exit_codes;

impl Exit {
    fn rank(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::OverBudget => 1,
            Self::Incomplete => 2,
            Self::Unusable => 3,
            Self::Interrupted(_) => 4,
        }
    }

    /// The one that applies of two.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    /// What an error of this name calls for.
    pub(crate) fn of_code(code: &ErrorCode) -> Self {
        if code.is_configuration() {
            Self::Unusable
        } else {
            Self::Incomplete
        }
    }

    /// What a signal calls for that stopped the command, where one did.
    pub(crate) fn of_signal(signal: Option<usize>) -> Self {
        let number = signal.and_then(|signal| u8::try_from(signal).ok());
        number.map_or(Self::Success, Self::Interrupted)
    }

    /// What a report's errors alone call for.
    pub(crate) fn of_errors(report: &Report) -> Self {
        let problems = report.problems.iter().map(|problem| &problem.code);
        let errors = report
            .runs
            .iter()
            .filter_map(|run| run.error.as_ref().map(|error| &error.code));
        problems.chain(errors).map(Self::of_code).fold(Self::Success, Self::or)
    }

    /// What a judged report calls for.
    pub(crate) fn of_judged(report: &Report, deny_warnings: bool) -> Self {
        let verdicts = report.verdicts.iter().map(|verdict| match verdict.status {
            Status::Fail => Self::OverBudget,
            Status::Warn if deny_warnings => Self::OverBudget,
            Status::Error => Self::Incomplete,
            _ => Self::Success,
        });
        // What somebody else wrote is never better than it says itself.
        let own = match report.status {
            Status::Fail => Self::OverBudget,
            Status::Error => Self::Incomplete,
            Status::Warn if deny_warnings => Self::OverBudget,
            Status::Pass | Status::Warn => Self::Success,
        };
        verdicts.fold(Self::of_errors(report).or(own), Self::or)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::OverBudget => 100,
            Exit::Incomplete => 101,
            Exit::Unusable => 2,
            Exit::Interrupted(signal) => 128_u8.saturating_add(signal),
        })
    }
}

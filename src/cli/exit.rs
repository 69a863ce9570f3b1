//! The exit codes and what each means.

use std::process::ExitCode;

use crate::report::{ErrorCode, Report, Status};

/// How a command ends. If several variants apply, the one with the highest `rank` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything is within budget, or there was nothing to check.
    Success,
    /// A check failed: for example, a model is over its budget.
    OverBudget,
    /// The command could not complete.
    Incomplete,
    /// The command line, the configuration or a version is unusable.
    Unusable,
    /// The signal with this number stopped the command. The exit code is 128 plus the number, as in shells.
    Interrupted(u8),
}

/// The signal that Ctrl-C sends.
const SIGINT: u8 = signal_hook::consts::SIGINT as u8;

/// Returns the text below a command's options: its examples and the exit codes.
pub(crate) fn with_exit_codes(examples: &str) -> String {
    let mut text = format!("{}\n\nExit codes:\n", examples.trim_end());
    for exit in Exit::ALL {
        for (line, meaning) in exit.meaning().lines().enumerate() {
            let code = if line == 0 {
                exit.code().to_string()
            } else {
                String::new()
            };
            text += &format!("  {code:<3}  {meaning}\n");
        }
    }
    text
}

impl Exit {
    /// The variants that the help lists, in its order. SIGINT stands for all signals.
    const ALL: [Self; 5] = [
        Self::Success,
        Self::OverBudget,
        Self::Incomplete,
        Self::Unusable,
        Self::Interrupted(SIGINT),
    ];

    /// Returns the meaning as lines of the help text.
    const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "within budget (warnings allowed)",
            Self::OverBudget => {
                "failed: over budget, regression, leak, out of memory, drift, a limit that\n\
                 was loosened (--deny-edits), a missing or outdated baseline, or no value\n\
                 that fits. Only `check`, `merge`, `diff --fail`, `bless --check` and\n\
                 `fit` exit with this code"
            }
            Self::Incomplete => {
                "could not complete: a build failed; a model crashed, timed out, did not\n\
                 run all steps or differed from run to run; a GPU is unusable; a result\n\
                 could not be written"
            }
            Self::Unusable => "unusable command line, configuration or version",
            Self::Interrupted(_) => "stopped by SIGINT (Ctrl-C); 143 if stopped by SIGTERM, 129 by SIGHUP",
        }
    }

    /// Returns the exit code of the process.
    const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::OverBudget => 100,
            Self::Incomplete => 101,
            Self::Unusable => 2,
            Self::Interrupted(signal) => 128_u8.saturating_add(signal),
        }
    }

    fn rank(self) -> u8 {
        match self {
            // Not by number: a model that could not be judged (101) may be over its budget, too, so 101 hides
            // 100. An unusable configuration (2) hides both.
            Self::Success => 0,
            Self::OverBudget => 1,
            Self::Incomplete => 2,
            Self::Unusable => 3,
            Self::Interrupted(_) => 4,
        }
    }

    /// Returns the one of the two that has the higher rank.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    /// Returns how a command ends after an error with this code.
    pub(crate) fn from_code(code: &ErrorCode) -> Self {
        if code.is_configuration() {
            Self::Unusable
        } else {
            Self::Incomplete
        }
    }

    /// Returns how a command ends if this signal stopped it; success without a signal.
    pub(crate) fn from_signal(signal: Option<usize>) -> Self {
        let number = signal.and_then(|signal| u8::try_from(signal).ok());
        number.map_or(Self::Success, Self::Interrupted)
    }

    /// Returns how a command ends by a report's problems and its runs' errors alone, without verdicts.
    pub(crate) fn from_errors(report: &Report) -> Self {
        let problems = report.problems.iter().map(|problem| &problem.code);
        let errors = report
            .runs
            .iter()
            .filter_map(|run| run.error.as_ref().map(|error| &error.code));
        problems
            .chain(errors)
            .map(Self::from_code)
            .fold(Self::Success, Self::or)
    }

    /// Returns how a command ends by a report with verdicts. `deny_warnings` turns warnings into failures.
    pub(crate) fn from_judged(report: &Report, deny_warnings: bool) -> Self {
        let verdicts = report.verdicts.iter().map(|verdict| match verdict.status {
            Status::Fail => Self::OverBudget,
            Status::Warn if deny_warnings => Self::OverBudget,
            Status::Error => Self::Incomplete,
            _ => Self::Success,
        });
        // A report from a file has a status of its own: the result is never better than that.
        let own = match report.status {
            Status::Fail => Self::OverBudget,
            Status::Error => Self::Incomplete,
            Status::Warn if deny_warnings => Self::OverBudget,
            Status::Pass | Status::Warn => Self::Success,
        };
        verdicts.fold(Self::from_errors(report).or(own), Self::or)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

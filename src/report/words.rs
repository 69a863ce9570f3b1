//! Values and names, formatted for sentences.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::report::{ChangedDependency, Mode, Pass, Phase, Rule, Run};
use crate::untrusted::Foreign;

/// Formats a part of a whole in percent, rounded to hundredths in integer arithmetic: `0.57 %`. Returns `None` if the
/// whole is 0. A part that is not 0 never shows as 0.
pub(crate) fn percent(part: Bytes, whole: Bytes) -> Option<String> {
    let (part, whole) = (u128::from(part.0), u128::from(whole.0));
    if whole == 0 {
        return None;
    }
    let hundredths = (part * 10_000 + whole / 2) / whole;
    Some(match hundredths {
        0 if part > 0 => "<0.01 %".to_owned(),
        _ if hundredths % 100 == 0 => format!("{} %", hundredths / 100),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    })
}

/// Returns the name of a pass in sentences.
pub(crate) const fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Cold => "cold",
        Pass::Warm => "warm",
        Pass::Traced => "traced",
    }
}

/// Returns the name of a mode in sentences.
pub(crate) const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Estimate => "estimated",
        Mode::Measure => "measured",
    }
}

/// Returns the Burn features that a run's program was built with, to follow the version: ` with fusion and autotune`;
/// empty if unknown.
pub(crate) fn with_features(run: &Run) -> String {
    run.features.map_or_else(String::new, |features| format!(" {features}"))
}

/// Returns what is wrong with a run that fails by a rule, in words.
pub(crate) const fn failure(rule: Rule) -> &'static str {
    match rule {
        Rule::Budget => "over budget",
        Rule::Growth => "regressed",
        Rule::Baseline => "no valid baseline",
        Rule::Drift => "drift",
        Rule::Oom => "out of memory",
        Rule::Leak => "leaking",
        Rule::Edit => "limit loosened",
        Rule::Build => "built differently from the deployed binaries",
    }
}

/// Returns a number with its noun: `1 stream`, `2 streams`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns the name of a phase in sentences.
pub(crate) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Context => "context",
        Phase::Model => "model",
        Phase::Batch => "batch",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
        Phase::Training => "training",
        Phase::Validation => "validation",
        Phase::Between => "between",
    }
}

/// Returns the last part of a kernel's type name: `burn_cubecl::…::ElemwiseFuse<cubecl_cuda::runtime::CudaRuntime>`
/// becomes `ElemwiseFuse`.
pub(crate) fn kernel_name(kernel: &str) -> &str {
    let path = kernel.split('<').next().unwrap_or(kernel);
    // A name that begins with `<` has no path before its generics.
    match path.rsplit("::").next() {
        Some(name) if !name.is_empty() => name,
        _ => kernel,
    }
}

/// Formats a short time: `10 ms`, `2.5 ms`.
pub(crate) fn milliseconds(time: Duration) -> String {
    let (whole, part) = (time.as_micros() / 1000, time.as_micros() % 1000);
    let digits = format!("{part:03}");
    match digits.trim_end_matches('0') {
        "" => format!("{whole} ms"),
        digits => format!("{whole}.{digits} ms"),
    }
}

/// Describes how the version of a dependency changed: `1.0.0 → 1.1.0`.
pub(crate) fn moved(dependency: &ChangedDependency) -> String {
    let [before, after] = [&dependency.before, &dependency.after].map(|versions| listed(versions));
    match (before.as_str(), after.as_str()) {
        ("", after) => format!("{after} is new"),
        (before, "") => format!("{before} was removed"),
        (before, after) => format!("{before} → {after}"),
    }
}

/// Lists texts, separated by commas.
pub(crate) fn listed(texts: &[Foreign]) -> String {
    texts.iter().map(Foreign::to_string).collect::<Vec<_>>().join(", ")
}

/// Formats a number in groups of three digits: `5,247,232`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Names the GPU that a value is from, if it is one of several: ` on GPU 1`.
pub(crate) fn of_gpu(gpu: Option<u32>) -> String {
    gpu.map_or_else(String::new, |gpu| format!(" on GPU {gpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_groups() {
        assert_eq!(
            [0, 999, 1000, 5_247_232].map(count),
            ["0", "999", "1,000", "5,247,232"].map(str::to_owned)
        );
    }

    #[test]
    fn a_percentage_is_rounded_and_never_to_nothing() {
        let shown = |part, whole| percent(Bytes(part), Bytes(whole));
        assert_eq!(shown(1, 8).as_deref(), Some("12.50 %"));
        assert_eq!(shown(5, 100).as_deref(), Some("5 %"));
        assert_eq!(shown(19_999, 20_000).as_deref(), Some("100 %"));
        assert_eq!(shown(1, 1 << 40).as_deref(), Some("<0.01 %"));
        assert_eq!(shown(0, 7).as_deref(), Some("0 %"));
        assert_eq!(shown(1, 0), None);
        assert_eq!(shown(u64::MAX, 1).as_deref(), Some("1844674407370955161500 %"));
    }

    #[test]
    fn a_kernel_is_told_without_its_path_and_its_generics() {
        for (kernel, name) in [
            (
                "a::elemwise_fuse::ElemwiseFuse<cubecl_cuda::runtime::CudaRuntime>",
                "ElemwiseFuse",
            ),
            ("a::KernelBinop<a::SubOp, b::CudaRuntime>", "KernelBinop"),
            ("matmul_f32", "matmul_f32"),
            ("<a as b>::c", "<a as b>::c"),
            ("", ""),
        ] {
            assert_eq!(kernel_name(kernel), name);
        }
    }

    #[test]
    fn times_have_no_more_digits_than_they_need() {
        let shown = |micros| milliseconds(Duration::from_micros(micros));
        assert_eq!(
            [shown(10_000), shown(2_500), shown(7), shown(0)],
            ["10 ms", "2.5 ms", "0.007 ms", "0 ms"]
        );
    }
}

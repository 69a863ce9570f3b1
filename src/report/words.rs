//! Figures in the form that people read, wherever a sentence needs them.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::report::{ChangedDependency, Mode, Pass, Phase, Rule, Run};

/// A part of a whole in percent, to the hundredth, in integer arithmetic: `0.57 %`. Where there is no whole there is
/// no percentage; what is not nothing never reads as nothing.
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

/// A pass, as sentences name it.
pub(crate) const fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Cold => "cold",
        Pass::Warm => "warm",
        Pass::Traced => "traced",
    }
}

/// How figures were obtained, as sentences name it.
pub(crate) const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Estimate => "estimated",
        Mode::Measure => "measured",
    }
}

/// The features of Burn that a run's program was built with, after the version: ` with fusion and autotune`; nothing where they
/// are not known.
pub(crate) fn with_features(run: &Run) -> String {
    run.features.map_or_else(String::new, |features| format!(" {features}"))
}

/// What a run is that fails by a rule.
pub(crate) const fn failure(rule: Rule) -> &'static str {
    match rule {
        Rule::Budget => "over budget",
        Rule::Growth => "regressed",
        Rule::Baseline => "no valid baseline",
        Rule::Drift => "drift",
        Rule::Oom => "out of memory",
        Rule::Leak => "leaking",
        Rule::Edit => "limit loosened",
        Rule::Build => "another build than the deployed one",
    }
}

/// A phase, as sentences name it.
pub(crate) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Context => "context",
        Phase::Model => "model",
        Phase::Batch => "batch",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
    }
}

/// A kernel by the last part of its type's name: `burn_cubecl::…::ElemwiseFuse<cubecl_cuda::runtime::CudaRuntime>` is
/// `ElemwiseFuse`.
pub(crate) fn kernel_name(kernel: &str) -> &str {
    let path = kernel.split('<').next().unwrap_or(kernel);
    match path.rsplit("::").next() {
        Some(name) if !name.is_empty() => name,
        _ => kernel,
    }
}

/// A short time: `10 ms`, `2.5 ms`.
pub(crate) fn milliseconds(time: Duration) -> String {
    let (whole, part) = (time.as_micros() / 1000, time.as_micros() % 1000);
    let digits = format!("{part:03}");
    match digits.trim_end_matches('0') {
        "" => format!("{whole} ms"),
        digits => format!("{whole}.{digits} ms"),
    }
}

/// From which versions to which a dependency went: `1.0.0 → 1.1.0`.
pub(crate) fn moved(dependency: &ChangedDependency) -> String {
    let ChangedDependency { before, after, .. } = dependency;
    match (before.as_slice(), after.as_slice()) {
        ([], after) => format!("{} is new", after.join(", ")),
        (before, []) => format!("{} is gone", before.join(", ")),
        (before, after) => format!("{} → {}", before.join(", "), after.join(", ")),
    }
}

/// A number in groups of three digits: `5,247,232`.
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

/// Whose figure it is, where it is of one of several cards: ` of card 1`.
pub(crate) fn of_card(card: Option<u32>) -> String {
    card.map_or_else(String::new, |card| format!(" of card {card}"))
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

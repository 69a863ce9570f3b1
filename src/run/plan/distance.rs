//! The distance between two autotune keys of one operation.

use serde_json::{Map, Value};

/// The distance for a number that is twice as large, in the unit of [`distance`].
const DOUBLING: u64 = 1 << FRACTION;
/// The number of binary places in a distance.
const FRACTION: u32 = 16;

/// The distance for a different field that is not a number: as much as for a number that is 65,536 times as large.
///
/// So keys that differ only in numbers are nearer.
const DIFFERENT: u64 = 16 * DOUBLING;

/// Returns the distance in 65,536ths: the sum over all numbers of |log2 of their ratio|, plus [`DIFFERENT`] for every
/// other field that differs.
///
/// Returns `None` if the keys have different shapes: other fields, or lists of other lengths.
///
/// Uses integers, because floating-point logarithms are not the same on every machine.
pub(super) fn distance(one: &Value, other: &Value) -> Option<u64> {
    match (one, other) {
        // The outermost name is the operation, such as `Conv`. Further inside, another name is only a variant
        // of an enum.
        (Value::Object(fields), Value::Object(others)) if !same_names(fields, others) => None,
        _ => within(one, other),
    }
}

fn within(one: &Value, other: &Value) -> Option<u64> {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => Some(match (a.as_u64(), b.as_u64()) {
            (Some(a), Some(b)) => log2(a).abs_diff(log2(b)),
            // Negative numbers and fractions have no logarithm here.
            _ if a == b => 0,
            _ => DIFFERENT,
        }),
        (Value::Array(items), Value::Array(others)) => {
            let same = items.len() == others.len();
            same.then(|| items.iter().zip(others)).and_then(sum)
        }
        (Value::Object(fields), Value::Object(others)) if same_names(fields, others) => sum(fields
            .iter()
            .filter_map(|(name, field)| Some((field, others.get(name)?)))),
        // Scalars, and variants of an enum: `"Contiguous"` and `{"MildlyPermuted":{…}}`.
        _ if one == other => Some(0),
        _ => Some(DIFFERENT),
    }
}

fn same_names(fields: &Map<String, Value>, others: &Map<String, Value>) -> bool {
    fields.len() == others.len() && fields.keys().all(|name| others.contains_key(name))
}

fn sum<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Option<u64> {
    pairs
        .map(|(one, other)| within(one, other))
        .try_fold(0_u64, |sum, far| Some(sum.saturating_add(far?)))
}

/// Computes the binary logarithm in 65,536ths, rounded down. Zero counts as one half, which is one doubling below one.
fn log2(number: u64) -> i64 {
    let Some(whole) = number.checked_ilog2() else {
        return -(1 << FRACTION);
    };
    // `rest` is a number from 1 to 2 with 63 binary places. Each squaring gives one more binary place of the logarithm.
    let mut rest = u128::from(number << (63 - whole));
    let mut logarithm = i64::from(whole);
    for _ in 0..FRACTION {
        rest = (rest * rest) >> 63;
        logarithm <<= 1;
        if rest >> 64 != 0 {
            rest >>= 1;
            logarithm |= 1;
        }
    }
    logarithm
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn logarithms_are_exact_for_powers_of_two_and_rounded_down_between() {
        for power in 0..64_u32 {
            assert_eq!(log2(1 << power), i64::from(power) << FRACTION);
        }
        assert_eq!(log2(3), 103_872, "1.58496 × 65,536");
        assert_eq!(log2(u64::MAX), (64 << FRACTION) - 1);
        assert_eq!(log2(0), -65_536);
    }

    #[test]
    fn twice_as_large_is_as_far_as_half_as_large() {
        let key = |batch: u64| json!({"Conv": {"batch_size": batch, "dtype": "F32"}});
        assert_eq!(distance(&key(32), &key(64)), Some(DOUBLING));
        assert_eq!(distance(&key(64), &key(32)), Some(DOUBLING));
        assert_eq!(distance(&key(32), &key(32)), Some(0));
        assert_eq!(distance(&key(0), &key(1)), Some(DOUBLING));
    }

    #[test]
    fn another_type_is_further_than_any_likely_size() {
        let key = |batch: u64, dtype: &str| json!({"Conv": {"batch_size": batch, "dtype": dtype}});
        let other_type = distance(&key(32, "F32"), &key(32, "F16"));
        assert_eq!(other_type, Some(DIFFERENT));
        assert!(distance(&key(1, "F32"), &key(4096, "F32")) < other_type);
    }

    #[test]
    fn the_forms_of_an_enum_are_one_difference_and_other_shapes_are_not_compared() {
        let key = |layout: Value| json!({"definition": {"m": 32, "layout": layout}});
        let permuted = json!({"MildlyPermuted": {"transposed": true, "batch_swap": false}});
        assert_eq!(distance(&key(json!("Contiguous")), &key(permuted)), Some(DIFFERENT));
        let sizes = |sizes: Value| json!({"Conv": {"kernel_size": sizes}});
        assert_eq!(distance(&sizes(json!([3, 3])), &sizes(json!([3]))), None);
        assert_eq!(distance(&json!({"Conv": {}}), &json!({"ConvTranspose": {}})), None);
    }
}

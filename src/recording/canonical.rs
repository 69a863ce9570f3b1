//! Canonical JSON: one line of text, which does not depend on the order of the fields.

use std::collections::BTreeMap;

use serde_json::Value;

/// Formats a value on one line with its fields sorted by name. Equal texts mean equal values.
#[must_use]
pub fn text(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                separate(at, text);
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            // Sort here, because another crate of the build may enable serde_json's feature that keeps the original
            // order.
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            text.push('{');
            for (at, (name, field)) in sorted.into_iter().enumerate() {
                separate(at, text);
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(field, text);
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn separate(at: usize, text: &mut String) {
    if at > 0 {
        text.push(',');
    }
}

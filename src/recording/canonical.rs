//! JSON as one line of text, the same for the same value whatever order its fields were in.

use std::collections::BTreeMap;

use serde_json::Value;

/// The value on one line, its fields sorted by name. Two values are equal where their texts are.
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
            // Sorted here, because another crate of the build may make serde_json keep the order it read.
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

//! One spelling per meaning: what was read must be what would be written.

use serde_json::{Map, Value};

use crate::manifest::{Invalid, shown};

/// How far two numbers may be apart that were computed on different machines from the same samples.
pub(crate) const ROUNDING: f64 = 1e-9;

/// The first place where `found` is not `expected`; numbers may differ by `tolerance` relative to each other. It finds
/// fields that the reader does not know, fields left out, and values that mean something else than they say.
pub(crate) fn difference(path: &str, found: &Value, expected: &Value, tolerance: f64) -> Option<Invalid> {
    let differ = || Some(Invalid { field: shown(path), found: brief(found), expected: brief(expected) });
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => fields(path, found, expected, tolerance),
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let pairs = items.iter().zip(others).enumerate();
            pairs
                .map(|(index, (one, other))| (format!("{path}[{index}]"), one, other))
                .find_map(|(path, one, other)| difference(&path, one, other, tolerance))
        }
        (Value::Number(one), Value::Number(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) if (one - other).abs() <= tolerance * other.abs() => None,
            _ => differ(),
        },
        _ if found == expected => None,
        _ => differ(),
    }
}

fn fields(path: &str, found: &Map<String, Value>, expected: &Map<String, Value>, tolerance: f64) -> Option<Invalid> {
    let place = |name: &String| format!("{path}.{name}");
    let finding = |name, found: &str, expected: String| {
        Some(Invalid { field: shown(&place(name)), found: found.to_owned(), expected })
    };
    let unknown = found.keys().find(|name| !expected.contains_key(*name));
    if let Some(name) = unknown {
        return finding(name, "a field", "none of this name".to_owned());
    }
    expected.iter().find_map(|(name, expected)| match found.get(name) {
        Some(found) => difference(&place(name), found, expected, tolerance),
        None => finding(name, "nothing", brief(expected)),
    })
}

/// A value as an error shows it.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        scalar => shown(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(found: &Value, expected: &Value) -> Option<String> {
        difference("spec", found, expected, ROUNDING).map(|invalid| invalid.to_string())
    }

    #[test]
    fn equal_values_and_rounding_are_no_difference() {
        let value = json!({"a": [1, 2.5, null, "x"], "b": {"c": true}});
        assert_eq!(found(&value, &value), None);
        assert_eq!(found(&json!([1]), &json!([1.0])), None);
        assert_eq!(found(&json!(1.000_000_000_01), &json!(1.0)), None);
    }

    #[test]
    fn differences_are_named() {
        let expected = json!({"a": [1, {"b": 2.0}]});
        let message = |value: Value| found(&value, &expected).expect("they differ");
        assert_eq!(message(json!({"a": [1, {"b": 2.1}]})), "spec.a[1].b: found 2.1, expected 2.0");
        assert_eq!(message(json!({"a": [1, {"b": "2.0"}]})), "spec.a[1].b: found \"2.0\", expected 2.0");
        assert_eq!(message(json!({"a": [1]})), "spec.a: found a list of 1, expected a list of 2");
        assert_eq!(message(json!({})), "spec.a: found nothing, expected a list of 2");
        assert_eq!(message(json!({"a": 0, "z": 1})), "spec.z: found a field, expected none of this name");
    }
}

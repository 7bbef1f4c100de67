//! The vectors that all languages share, and the limits beyond which members are replaced whole.

use serde_json::{Value, json};

use super::{MAX_OPERATIONS, diff, text_of};

fn patch(before: &Value, after: &Value) -> Value {
    let text = text_of(&diff(before, after));
    if text.is_empty() { json!([]) } else { serde_json::from_slice(&text).expect("a patch is JSON") }
}

#[test]
fn the_vectors_hold_to_the_byte() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../conformance/admission_gateway_conformance/diff.json"))
            .expect("the vectors are JSON");
    assert!(!vectors.is_empty());
    for vector in vectors {
        let text = text_of(&diff(&vector["before"], &vector["after"]));
        // No operations are sent as no text.
        let expected = vector["text"].as_str().filter(|text| *text != "[]").unwrap_or("");
        assert_eq!(String::from_utf8(text).expect("UTF-8"), expected, "{}", vector["name"]);
        let operations = patch(&vector["before"], &vector["after"]);
        assert_eq!(operations, vector["patch"], "{}", vector["name"]);
    }
}

#[test]
fn one_and_one_point_zero_and_true_are_three_values() {
    for (before, after) in [(json!(1), json!(1.0)), (json!(1.0), json!(true)), (json!(true), json!(1))] {
        let found = patch(&json!({"a": before}), &json!({"a": after}));
        assert_eq!(found, json!([{"op": "replace", "path": "/a", "value": after}]));
    }
    assert_eq!(patch(&json!({"a": 0.0}), &json!({"a": -0.0})), json!([]));
}

#[test]
fn more_operations_than_allowed_replace_the_members_that_differ() {
    let numbers = |from: usize| (from..=from + MAX_OPERATIONS).collect::<Vec<_>>();
    let before = json!({"same": [1], "many": numbers(0), "gone": 1});
    let after = json!({"same": [1], "many": numbers(1_000_000), "more": 2});
    let found = patch(&before, &after);
    let operations = found.as_array().expect("an array");
    let named: Vec<_> = operations.iter().map(|one| (one["op"].as_str(), one["path"].as_str())).collect();
    assert_eq!(
        named,
        [(Some("remove"), Some("/gone")), (Some("replace"), Some("/many")), (Some("add"), Some("/more"))]
    );
}

#[test]
fn too_many_members_replace_the_document() {
    let before: Value =
        (0..=MAX_OPERATIONS).map(|n| (n.to_string(), json!(1))).collect::<serde_json::Map<_, _>>().into();
    let after: Value =
        (0..=MAX_OPERATIONS).map(|n| (n.to_string(), json!(2))).collect::<serde_json::Map<_, _>>().into();
    let found = diff(&before, &after);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].op, found[0].path.as_str(), found[0].value), ("replace", "", Some(&after)));
}

#[test]
fn lists_that_move_too_often_are_replaced_whole() {
    let before: Vec<usize> = (0..20_000).collect();
    let after: Vec<usize> = (100_000..109_000).chain(0..20_000).collect();
    let found = diff(&json!({"a": before}), &json!({"a": after})).len();
    assert_eq!(found, 1);
}

#[test]
fn deep_documents_do_not_end_the_worker() {
    let nested = |leaf: Value| (0..1000).fold(leaf, |inner, _| json!({"a": inner}));
    let (before, after) = (nested(json!(1)), nested(json!(2)));
    let found = diff(&before, &after);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "/a".repeat(1000));
}

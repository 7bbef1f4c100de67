//! The vectors that all languages share, and the limits beyond which members are replaced whole.

use serde_json::{Value, json};

use super::{MAX_OPERATIONS, MAX_PATH_BYTES, diff, text_of};

fn patch(before: &Value, after: &Value) -> Value {
    let text = text_of(&diff(before, after));
    if text.is_empty() { json!([]) } else { serde_json::from_slice(&text).expect("a patch is JSON") }
}

#[test]
fn another_library_makes_the_changed_object_of_the_patch() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../conformance/admission_gateway_conformance/diff.json"))
            .expect("the vectors are JSON");
    assert!(!vectors.is_empty());
    for vector in vectors {
        let (before, after) = (&vector["before"], &vector["after"]);
        let operations = patch(before, after);
        let mut found = before.clone();
        let read: json_patch::Patch = serde_json::from_value(operations.clone()).expect("a JSON Patch");
        json_patch::patch(&mut found, &read).expect("it applies");
        assert_eq!(&found, after, "{}: {operations}", vector["name"]);
        assert_eq!(before == after, operations == json!([]), "{}", vector["name"]);
    }
}

#[test]
fn common_ends_of_lists_stay() {
    let found = patch(&json!([[1, 2, 3]]), &json!([[0, 1, 2, 3]]));
    assert_eq!(found, json!([{"op": "add", "path": "/0/0", "value": 0}]));
    let found = patch(&json!({"~/": [1, 2, {"a": 1}, 3]}), &json!({"~/": [1, {"a": 2}, 3]}));
    let expected = json!([
        {"op": "replace", "path": "/~0~1/1", "value": {"a": 2}}, {"op": "remove", "path": "/~0~1/2"}
    ]);
    assert_eq!(found, expected);
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

#[test]
fn paths_longer_than_an_answer_replace_the_member() {
    let key = "k".repeat(MAX_PATH_BYTES / 100);
    let nested = |value: u64| json!({"a": {&key: vec![value; 100]}});
    let (before, after) = (nested(1), nested(2));
    let found = diff(&before, &after);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "/a");
}

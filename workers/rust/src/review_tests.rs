//! What a policy sees, also of requests that are malformed, and the patch of what it changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

fn review_of(request: &str) -> Review {
    Review::new(Payload::new(Bytes::from(request.to_owned()), Bytes::new()), None, true)
}

#[test]
fn the_fields_of_a_request_are_there() -> Result {
    let review = Review::from_json(&json!({"kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "UPDATE", "name": "web", "namespace": "shop", "subResource": "scale",
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "userInfo": {"username": "ann"}, "dryRun": true,
        "object": {"a": 1}, "oldObject": {"a": 0},
    }}));
    assert_eq!((review.uid()?, review.operation()?, review.name()?), ("u", "UPDATE", "web"));
    assert_eq!((review.namespace()?, review.sub_resource()?), ("shop", "scale"));
    assert_eq!(review.kind()?, Kind { group: "apps", version: "v1", kind: "Deployment" });
    assert_eq!(review.resource()?.kind, "deployments");
    assert_eq!(review.user_info()?["username"], "ann");
    assert!(review.dry_run()?);
    assert_eq!((review.object()?, review.old_object()?), (&json!({"a": 1}), &json!({"a": 0})));
    assert_eq!(review.request()?["oldObject"], json!({"a": 0}));
    Ok(())
}

#[test]
fn what_is_absent_or_null_is_empty() -> Result {
    for request in ["{}", r#"{"operation":null,"kind":null,"object":null,"dryRun":null}"#] {
        let review = review_of(request);
        assert_eq!((review.operation()?, review.kind()?.kind, review.dry_run()?), ("", "", false));
        assert!(review.object()?.is_null() && review.old_object()?.is_null());
        assert!(review.namespace_object()?.is_null());
        assert!(review.object_as::<Value>()?.is_none() && review.old_object_as::<Value>()?.is_none());
        assert_eq!((review.deadline(), review.remaining()), (None, None));
        assert!(review.changes()?.is_empty());
    }
    Ok(())
}

#[test]
fn what_is_malformed_is_told_wherever_one_looks() {
    for (request, wanted) in [
        ("", "admission_request is not JSON: EOF while parsing"),
        (r#"{"operation":"CREATE""#, "admission_request is not JSON: EOF while parsing"),
        (r#"{"operation":"CREATE","object":{"a":01}}"#, "admission_request is not JSON: invalid number"),
        ("[1]", "admission_request is to be a JSON object, found array"),
        ("\"text\"", "admission_request is to be a JSON object, found string"),
    ] {
        let review = review_of(request);
        for found in [review.operation().err(), review.object().err(), review.request().err()] {
            let text = found.expect("malformed").to_string();
            assert!(text.starts_with(wanted), "{text}");
        }
    }
    // What is passed over at first shows when it is looked at.
    for part in [r#""\ud800""#, "1e999"] {
        let review = review_of(&format!(r#"{{"operation":"CREATE","object":{{"a":{part}}}}}"#));
        let text = review.object().expect_err("malformed").to_string();
        assert!(text.starts_with("admission_request is not JSON: "), "{text}");
        assert!(review.object_as::<Value>().is_err());
    }
    let namespace = Payload::new(Bytes::from("{}"), Bytes::from("[]"));
    let found = Review::new(namespace, None, false).namespace_object().expect_err("malformed").to_string();
    assert_eq!(found, "namespace_object is to be a JSON object, found array");
}

#[test]
fn a_deep_object_is_read_and_changed() -> Result {
    let deep = format!("{}1{}", "[".repeat(900), "]".repeat(900));
    let mut review = review_of(&format!(r#"{{"operation":"CREATE","object":{{"a":{deep}}}}}"#));
    review.object_mut()?["b"] = json!(1);
    assert_eq!(review.changes()?, [json!({"op": "add", "path": "/b", "value": 1})]);
    let review = review_of(&format!(r#"{{"operation":"CREATE","options":{deep},"object":{{"a":1}}}}"#));
    assert_eq!((review.operation()?, &review.object()?["a"]), ("CREATE", &json!(1)));
    Ok(())
}

#[test]
fn calls_that_share_a_payload_see_no_change_of_each_other() -> Result {
    let payload = Payload::new(Bytes::from(r#"{"object":{"a":1}}"#), Bytes::new());
    let mut one = Review::new(payload.clone(), None, true);
    let other = Review::new(payload, None, true);
    one.object_mut()?["a"] = json!(2);
    assert_eq!((&one.object()?["a"], &other.object()?["a"]), (&json!(2), &json!(1)));
    assert_eq!(one.changes()?, [json!({"op": "replace", "path": "/a", "value": 2})]);
    assert!(other.changes()?.is_empty());
    assert_eq!(one.request()?["object"], json!({"a": 1}));
    Ok(())
}

#[test]
fn a_patch_that_is_set_counts_instead_of_changes() -> Result {
    let mut review = review_of(r#"{"object":{"a":1}}"#);
    review.object_mut()?["a"] = json!(2);
    let operations = vec![json!({"op": "test", "path": "/a", "value": 1})];
    review.set_patch(operations.clone());
    assert_eq!(review.changes()?, operations);
    review.set_patch(Vec::new());
    assert!(review.changes()?.is_empty());
    Ok(())
}

#[test]
fn what_is_said_is_kept_in_order() {
    let review = Review::from_json(&json!({}));
    review.warn("b");
    review.warn("a");
    review.annotate("k", "1");
    review.annotate("k", "2");
    assert_eq!(review.warnings(), ["b", "a"]);
    assert_eq!(review.annotations(), BTreeMap::from([("k".to_owned(), "2".to_owned())]));
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Spec {
    replicas: Option<u32>,
    paused: bool,
}

#[test]
fn a_type_is_read_from_the_text_and_from_what_was_changed() -> Result {
    let mut review = review_of(r#"{"object":{"replicas":1,"other":1.0},"oldObject":{"paused":true}}"#);
    let spec = Spec { replicas: Some(1), paused: false };
    assert_eq!(review.object_as::<Spec>()?, Some(spec));
    assert_eq!(review.old_object_as::<Spec>()?, Some(Spec { replicas: None, paused: true }));
    review.object_mut()?["replicas"] = json!(2);
    let mut spec: Spec = review.object_as()?.expect("an object");
    assert_eq!(spec.replicas, Some(2));
    spec.replicas = Some(3);
    review.set_object_as(&spec)?;
    assert_eq!(review.changes()?, [json!({"op": "replace", "path": "/replicas", "value": 3})]);
    let problem = review_of(r#"{"object":{"replicas":-1}}"#).object_as::<Spec>().expect_err("no Spec");
    assert!(problem.to_string().starts_with("the object is no Spec: invalid value: integer"), "{problem}");
    Ok(())
}

#[test]
fn time_left_runs_out() {
    let review = Review::from_json(&json!({})).with_timeout(Duration::from_secs(3600));
    assert!(review.remaining().expect("known") > Duration::from_secs(3000));
    let review = Review::from_json(&json!({})).with_timeout(Duration::ZERO);
    assert_eq!(review.remaining(), Some(Duration::ZERO));
    let namespace = json!({"metadata": {"labels": {"team": "a"}}});
    let review = review.with_namespace_object(&namespace);
    assert_eq!(review.namespace_object().expect("one"), &namespace);
}

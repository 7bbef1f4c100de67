//! What modules answer, and what the gateway then gets.

use admission_gateway_wasm::policy::Action;
use admission_gateway_worker::{Cause, Denied, json};

use crate::folder::{ask, denial, guest, quick, ready, request};

#[tokio::test]
async fn a_rejection_has_the_code_and_the_message_of_the_module() {
    for (verdict, wanted) in [
        (r#"{"accepted":false,"message":"no","code":422}"#, Denied::new("no").code(422)),
        (r#"{"accepted":false,"message":"no"}"#, Denied::new("no").code(400)),
        (r#"{"accepted":false}"#, Denied::new("").code(400)),
    ] {
        let policy = ready(&guest("", "", verdict), json!({}), quick());
        assert_eq!(denial(ask(&policy, &request(), None).await.0), wanted, "{verdict}");
    }
}

#[tokio::test]
async fn warnings_and_annotations_go_along() {
    let verdict =
        r#"{"accepted":true,"warnings":["careful"],"audit_annotations":{"k":"v"},"mutated_object":null}"#;
    let policy = ready(&guest("", "", verdict), json!({}), quick());
    let (result, review) = ask(&policy, &request(), None).await;
    assert!(result.is_ok());
    assert_eq!((review.warnings(), review.annotations()["k"].as_str()), (vec!["careful".to_owned()], "v"));
}

#[tokio::test]
async fn a_changed_object_becomes_a_patch() {
    let verdict = r#"{"accepted":true,"mutated_object":{"kind":"Pod","n":2}}"#;
    let module = guest("", "", verdict);
    let policy = ready(&module, json!({"mutating": true}), quick());
    let (result, review) = ask(&policy, &request(), None).await;
    assert!(result.is_ok());
    assert_eq!(review.changes().expect("a patch"), [json!({"op": "replace", "path": "/n", "value": 2})]);
    let (_, review) = ask(&policy, &request(), Some(Action::Audit)).await;
    assert!(review.changes().expect("none").is_empty());

    let deleted = json!({"uid": "1", "operation": "DELETE", "object": null});
    let text = "Incoming object is null, which happens only with DELETE operations, but the policy is attempting a mutation. \
                This is not allowed";
    assert_eq!(denial(ask(&policy, &deleted, None).await.0), Denied::new(text).code(400));

    let policy = ready(&module, json!({}), quick());
    let text = "Request rejected by policy p. The policy attempted to mutate the request, but it is currently configured to \
                not allow mutations.";
    assert_eq!(denial(ask(&policy, &request(), None).await.0), Denied::new(text).code(400));
    // The same object is no mutation.
    let same = r#"{"accepted":true,"mutated_object":{"n":1,"kind":"Pod"}}"#;
    assert!(ask(&ready(&guest("", "", same), json!({}), quick()), &request(), None).await.0.is_ok());
}

#[tokio::test]
async fn the_parameter_replaces_the_mode() {
    let module = guest("", "", r#"{"accepted":false,"message":"no"}"#);
    let protects = ready(&module, json!({"mode": "protect"}), quick());
    let monitors = ready(&module, json!({"mode": "monitor"}), quick());
    for policy in [&protects, &monitors] {
        assert_eq!(denial(ask(policy, &request(), Some(Action::Deny)).await.0), Denied::new("no").code(400));
        let (result, review) = ask(policy, &request(), Some(Action::Warn)).await;
        assert!(result.is_ok() && review.annotations().is_empty());
        assert_eq!(review.warnings(), ["no"]);
        let (result, review) = ask(policy, &request(), Some(Action::Audit)).await;
        assert!(result.is_ok() && review.warnings().is_empty());
        assert_eq!(review.annotations()["violations"], "no");
    }
    let (result, review) = ask(&monitors, &request(), None).await;
    assert!(result.is_ok() && review.annotations()["violations"] == "no");
    assert!(ask(&protects, &request(), None).await.0.is_err());
}

#[tokio::test]
async fn the_message_of_the_document_keeps_the_modules_as_a_cause() {
    let module = guest("", "", r#"{"accepted":false,"message":"no","code":418}"#);
    let policy = ready(&module, json!({"message": "ask the platform team"}), quick());
    let wanted = Denied::new("ask the platform team").code(418).cause(Cause::new("no").reason(""));
    assert_eq!(denial(ask(&policy, &request(), None).await.0), wanted);
}

#[tokio::test]
async fn a_module_gets_the_request_and_its_settings() {
    // Answers with an error that is the payload.
    let body = "(call $request (i32.const 512) (i32.const 4096))
                (call $error (i32.const 4096) (local.get $length)) (return (i32.const 0))";
    let policy = ready(&guest("", body, ""), json!({"settings": {"a": [1, 2.5]}}), quick());
    let text = format!(
        r#"internal server error: the module failed: validate: {{"request":{},"settings":{{"a":[1,2.5]}}}}"#,
        request()
    );
    assert_eq!(denial(ask(&policy, &request(), None).await.0), Denied::new(&text).code(500));
    // API servers send what there is not as null, and Kubewarden leaves it out.
    let mut with_null = request();
    with_null["oldObject"] = json!(null);
    with_null["options"] = json!(null);
    assert_eq!(denial(ask(&policy, &with_null, None).await.0), Denied::new(text).code(500));
}

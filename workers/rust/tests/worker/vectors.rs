//! The sample policies, as a process of their own, against the vectors that all languages share.

use crate::gateway::pb::{Parameters, Payload, ReviewBatch, ReviewResponse};
use crate::gateway::{Conversation, call, connect, error_of, response_of};
use crate::process::{Socket, Worker};
use admission_gateway_worker::{Value, json};

fn vectors() -> Vec<Value> {
    let found: Vec<Value> =
        serde_json::from_str(include_str!("../../../conformance/admission_gateway_conformance/samples.json"))
            .expect("the vectors are JSON");
    assert!(!found.is_empty());
    found
}

fn payload(vector: &Value) -> Payload {
    let text = |value: &Value| if value.is_null() { Vec::new() } else { value.to_string().into_bytes() };
    Payload {
        admission_request: text(&vector["request"]),
        namespace_object: text(&vector["namespaceObject"]),
    }
}

fn parameters_of(vector: &Value) -> Vec<u8> {
    let parameters = &vector["parameters"];
    if parameters.is_null() { Vec::new() } else { parameters.to_string().into_bytes() }
}

/// The request's object after a patch, by another library.
fn patched(request: &Value, patch: Value) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(patch).expect("a JSON Patch");
    let mut object = request["object"].clone();
    json_patch::patch(&mut object, &patch).expect("it applies");
    object
}

/// The response to `request` in the form of the vectors.
fn told(request: &Value, response: &ReviewResponse) -> Value {
    let mut found = json!({"allowed": response.allowed});
    if let Some(status) = &response.status {
        let cause =
            |cause: &crate::gateway::pb::StatusCause| json!([cause.reason, cause.message, cause.field]);
        let causes: Vec<_> = status.causes.iter().map(cause).collect();
        let about = [&status.name, &status.group, &status.kind, &status.uid];
        let details = json!([status.retry_after_seconds, about]);
        found["status"] = json!([status.code, status.reason, status.message, causes, details]);
    }
    let patch = if response.patch.is_empty() { b"[]" } else { &response.patch[..] };
    found["object"] = patched(request, serde_json::from_slice(patch).expect("JSON"));
    found["warnings"] = response.warnings.clone().into();
    found["auditAnnotations"] = json!(response.audit_annotations);
    found
}

fn expected(request: &Value, response: &Value) -> Value {
    let or = |value: &Value, default: Value| if value.is_null() { default } else { value.clone() };
    let mut found = json!({"allowed": response["allowed"]});
    if let Some(status) = response.get("status") {
        let text = |key: &str| or(&status[key], json!(""));
        let causes = or(&status["causes"], json!([]));
        let cause = |cause: &Value| {
            let text = |key: &str| or(&cause[key], json!(""));
            json!([text("reason"), text("message"), text("field")])
        };
        let causes: Vec<_> = causes.as_array().expect("a list").iter().map(cause).collect();
        let about = [text("name"), text("group"), text("kind"), text("uid")];
        let details = json!([or(&status["retryAfterSeconds"], json!(0)), about]);
        found["status"] = json!([status["code"], text("reason"), text("message"), causes, details]);
    }
    found["object"] = patched(request, or(&response["patch"], json!([])));
    found["warnings"] = or(&response["warnings"], json!([]));
    found["auditAnnotations"] = or(&response["auditAnnotations"], json!({}));
    found
}

#[tokio::test]
async fn the_vectors_hold_call_by_call() {
    let worker = Worker::start(&["--listen", "127.0.0.1:0"]);
    let mut client = connect(&worker.addresses[0]).await;
    for vector in vectors() {
        let Payload { admission_request, namespace_object } = payload(&vector);
        let policy = vector["policy"].as_str().expect("a name").to_owned();
        let parameters = parameters_of(&vector);
        let request =
            crate::gateway::pb::ReviewRequest { policy, admission_request, namespace_object, parameters };
        let name = &vector["name"];
        match client.review(request).await {
            Ok(response) => {
                let wanted = expected(&vector["request"], &vector["outcome"]["response"]);
                assert_eq!(told(&vector["request"], response.get_ref()), wanted, "{name}");
            }
            Err(status) => {
                let found = json!({"code": status.code() as i32, "message": status.message()});
                assert_eq!(found, vector["outcome"]["error"], "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_vectors_hold_all_at_once() {
    let socket = Socket::new("vectors");
    let worker = Worker::start(&["--listen", &socket.address()]);
    let mut client = connect(&worker.addresses[0]).await;
    let mut stream = Conversation::open(&mut client).await;
    let vectors = vectors();
    let calls = vectors.iter().enumerate().map(|(position, vector)| {
        let mut one = call(position as u64, vector["policy"].as_str().expect("a name"), 60_000);
        one.payload = position as u32;
        // By position too; there are few vectors with parameters.
        let given: Vec<_> = vectors.iter().filter(|vector| !vector["parameters"].is_null()).collect();
        let found = given.iter().position(|other| std::ptr::eq(*other, vector));
        one.parameters = found.map_or(0, |position| position as u32 + 1);
        one
    });
    let given = vectors.iter().map(parameters_of).filter(|json| !json.is_empty());
    let parameters = given.enumerate().map(|(position, json)| Parameters { id: position as u32 + 1, json });
    stream.send(ReviewBatch {
        payloads: vectors.iter().map(payload).collect(),
        calls: calls.collect(),
        parameters: parameters.collect(),
        ..Default::default()
    });
    for (vector, verdict) in vectors.iter().zip(stream.verdicts(vectors.len()).await) {
        let name = &vector["name"];
        if vector["outcome"]["error"].is_null() {
            let wanted = expected(&vector["request"], &vector["outcome"]["response"]);
            assert_eq!(told(&vector["request"], response_of(&verdict)), wanted, "{name}");
        } else {
            let (code, message) = error_of(&verdict);
            assert_eq!(json!({"code": code, "message": message}), vector["outcome"]["error"], "{name}");
        }
    }
}

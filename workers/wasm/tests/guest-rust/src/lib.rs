//! A waPC guest in Rust that does what its settings say, for the tests of the worker.

use serde_json::{Value, json};
use wapc_guest::prelude::*;

/// Called by the host when an instance begins.
#[unsafe(no_mangle)]
pub extern "C" fn wapc_init() {
    register_function("protocol_version", |_| Ok(b"\"v1\"".to_vec()));
    register_function("validate_settings", |payload| {
        let settings: Value = serde_json::from_slice(payload)?;
        let problem = json!({"valid": false, "message": "do is required"});
        answer(if settings["do"].is_string() { json!({"valid": true}) } else { problem })
    });
    register_function("validate", validate);
}

fn validate(payload: &[u8]) -> CallResult {
    let given: Value = serde_json::from_slice(payload)?;
    match given["settings"]["do"].as_str().unwrap_or_default() {
        "accept" => answer(json!({"accepted": true})),
        "reject" => answer(
            json!({"accepted": false, "message": format!("not {}", given["request"]["name"]), "code": 422}),
        ),
        "mutate" => {
            let mut object = given["request"]["object"].clone();
            object["seen"] = true.into();
            answer(json!({"accepted": true, "mutated_object": object}))
        }
        "fail" => Err("broken".into()),
        "panic" => panic!("a bug"),
        operation => {
            let wanted = given["settings"]["payload"].to_string();
            let found = host_call("kubewarden", "kubernetes", operation, wanted.as_bytes())?;
            answer(json!({"accepted": true, "warnings": [String::from_utf8(found)?]}))
        }
    }
}

fn answer(value: Value) -> CallResult {
    Ok(serde_json::to_vec(&value)?)
}

//! Calls of the host.

use std::sync::Arc;

use admission_gateway_wasm::policy::Ready;
use admission_gateway_worker::{Denied, Value, json, serde_json};

use crate::folder::{Folder, ask, denial, document, guest, program, quick, ready, request};

/// Policies of the guest in Go that do these things with these payloads, of one compilation; `None` without Go.
fn all(cases: &[(&str, Value)], spec: &Value, metadata: &str) -> Option<Vec<Arc<Ready>>> {
    let folder = Folder::new();
    folder.write("module.wasm", program()?);
    folder.write("module.metadata.yml", format!("executionMode: wasi\n{metadata}"));
    let documents: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(index, (what, payload))| {
            let mut all = json!({"module": "file:module.wasm", "settings": {"do": what, "payload": payload}});
            all.as_object_mut().expect("one").extend(spec.as_object().expect("one").clone());
            document(&format!("p{index}"), all)
        })
        .collect();
    folder.write("policies.json", json!({"kind": "List", "items": documents}).to_string());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}});
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "a"}});
    folder.write("objects/all.yaml", format!("{secret}\n---\n{config}\n"));
    let found = folder.loader(quick()).ready().expect("good policies");
    Some(found.into_iter().map(Arc::new).collect())
}

#[tokio::test]
async fn a_program_reads_and_writes() {
    let cases = ["accept", "reject", "mutate", "exit", "nothing"].map(|what| (what, json!(null)));
    let Some(policies) = all(&cases, &json!({"mutating": true}), "") else { return };
    let (result, review) = ask(&policies[0], &request(), None).await;
    assert!(result.is_ok());
    assert_eq!(review.warnings(), ["careful"]);
    let denied = denial(ask(&policies[1], &request(), None).await.0);
    assert_eq!(denied, Denied::new("not web").code(422));
    let (_, review) = ask(&policies[2], &request(), None).await;
    assert_eq!(review.changes().expect("a patch"), [json!({"op": "add", "path": "/seen", "value": true})]);
    for (policy, text) in policies[3..].iter().zip(["exited with status 3", "EOF while parsing"]) {
        let found = denial(ask(policy, &request(), None).await.0).to_string();
        assert!(found.starts_with("internal server error: ") && found.contains(text), "{found}");
    }
}

#[tokio::test]
async fn objects_are_read_where_the_document_grants_it() {
    let granted = json!({"contextAwareResources": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    let operations = ["get_resource", "list_resources_all", "list_resources_by_namespace"];
    let names = operations.map(|operation| format!("kubernetes {operation}"));
    let of = |kind: &str| {
        let wanted = json!({"api_version": "v1", "kind": kind, "name": "c", "namespace": "a"});
        names.iter().map(move |name| (name.as_str(), wanted.clone())).collect::<Vec<_>>()
    };
    for metadata in ["", "hostCapabilities: ['kubernetes/*']"] {
        let Some(policies) = all(&of("ConfigMap"), &granted, metadata) else { return };
        for (policy, operation) in policies.iter().zip(operations) {
            let (result, review) = ask(policy, &request(), None).await;
            assert!(result.is_ok(), "{operation}");
            let found: Value = serde_json::from_str(&review.warnings()[0]).expect("JSON");
            let object = if operation == "get_resource" { &found } else { &found["items"][0] };
            assert_eq!(object["metadata"]["name"], "c", "{operation}");
        }
    }
    for policy in all(&of("Secret"), &granted, "").expect("Go") {
        let refused = "Policy has not been granted access to Kubernetes v1/Secret resources. The violation has been reported.";
        assert_eq!(denial(ask(&policy, &request(), None).await.0).to_string(), refused);
    }
    let bounded = all(&of("ConfigMap"), &granted, "hostCapabilities: ['oci/*']").expect("Go");
    for (policy, operation) in bounded.iter().zip(operations) {
        let refused = format!(
            "Policy has not been granted access to the 'kubernetes/{operation}' host capability. The violation has been reported."
        );
        assert_eq!(denial(ask(policy, &request(), None).await.0).to_string(), refused);
    }
}

#[tokio::test]
async fn what_there_is_not_is_refused_by_name() {
    let refused = |path: &str| {
        format!(
            "Policy has not been granted access to the '{path}' host capability. The violation has been reported."
        )
    };
    let cases = [
        ("kubernetes can_i", refused("kubernetes/can_i")),
        ("oci v1/verify", refused("oci/v1/verify")),
        ("net v1/dns_lookup_host", refused("net/v1/dns_lookup_host")),
        ("crypto v1/is_certificate_trusted", refused("crypto/v1/is_certificate_trusted")),
        ("oci v9/verify", "unknown operation: v9/verify".to_owned()),
        ("tracing x", "unknown operation: x".to_owned()),
        ("files read", "unknown namespace: files".to_owned()),
    ];
    let mut asked: Vec<_> = cases.iter().map(|(what, _)| (*what, json!({}))).collect();
    asked.push(("tracing log", json!({"level": "info", "message": "hello"})));
    let Some(policies) = all(&asked, &json!({}), "") else { return };
    for (policy, (_, text)) in policies.iter().zip(&cases) {
        assert_eq!(denial(ask(policy, &request(), None).await.0).to_string(), *text);
    }
    assert!(ask(&policies[cases.len()], &request(), None).await.0.is_ok());
}

#[tokio::test]
async fn a_wapc_guest_gets_the_answer_of_the_host_or_its_error() {
    // Calls kubewarden / tracing / log, and answers with the lengths as its success.
    let data = r#"(data (i32.const 2048) "kubewardentracinglog{}other")"#;
    let call = |binding: (u32, u32)| {
        format!(
            "(if (call $call (i32.const {}) (i32.const {}) (i32.const 2058) (i32.const 7) (i32.const 2065) (i32.const 3)
                 (i32.const 2068) (i32.const 2))
               (then (if (call $response_len) (then unreachable)))
               (else (call $host_error (i32.const 8192))
                     (call $error (i32.const 8192) (call $error_len)) (return (i32.const 0))))",
            binding.0, binding.1
        )
    };
    let allows = r#"{"accepted":true}"#;
    let policy = ready(&guest(data, &call((2048, 10)), allows), json!({}), quick());
    assert!(ask(&policy, &request(), None).await.0.is_ok());
    let policy = ready(&guest(data, &call((2070, 5)), allows), json!({}), quick());
    let text = "internal server error: the module failed: validate: unknown binding: other";
    assert_eq!(denial(ask(&policy, &request(), None).await.0).to_string(), text);
}

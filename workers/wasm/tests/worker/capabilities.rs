//! Calls of the host.

use std::sync::Arc;

use admission_gateway_wasm::policy::Ready;
use admission_gateway_worker::{Denied, Value, json, serde_json};

use crate::folder::{Folder, ask, denial, document, guest, program, quick, ready, request};

/// The policy of the guest in Go that does this; `None` without Go.
fn does(what: &str, payload: Value, spec: Value, metadata: &str) -> Option<Arc<Ready>> {
    let folder = Folder::new();
    folder.write("module.wasm", program()?);
    folder.write("module.metadata.yml", format!("executionMode: wasi\n{metadata}"));
    let mut all = json!({"module": "file:module.wasm", "settings": {"do": what, "payload": payload}});
    all.as_object_mut().expect("one").extend(spec.as_object().expect("one").clone());
    folder.write("policy.yaml", document("p", all).to_string());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "a", "labels": {"x": "y"}}});
    folder.write("objects/all.yaml", format!("{secret}\n---\n{config}\n"));
    let mut found = folder.loader(quick()).ready().expect("a good policy");
    Some(Arc::new(found.remove(0)))
}

#[tokio::test]
async fn a_program_reads_and_writes() {
    let Some(policy) = does("accept", json!(null), json!({}), "") else { return };
    let (result, review) = ask(&policy, &request(), None).await;
    assert!(result.is_ok());
    assert_eq!(review.warnings(), ["careful"]);
    let policy = does("reject", json!(null), json!({}), "").expect("Go");
    assert_eq!(denial(ask(&policy, &request(), None).await.0), Denied::new("not web").code(422));
    let policy = does("mutate", json!(null), json!({"mutating": true}), "").expect("Go");
    let (_, review) = ask(&policy, &request(), None).await;
    assert_eq!(review.changes().expect("a patch"), [json!({"op": "add", "path": "/seen", "value": true})]);
    for (what, text) in [("exit", "exited with status 3"), ("nothing", "EOF while parsing")] {
        let policy = does(what, json!(null), json!({}), "").expect("Go");
        let found = denial(ask(&policy, &request(), None).await.0).to_string();
        assert!(found.starts_with("internal server error: ") && found.contains(text), "{found}");
    }
}

#[tokio::test]
async fn objects_are_read_where_the_document_grants_it() {
    let granted = json!({"contextAwareResources": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    let wanted = json!({"api_version": "v1", "kind": "ConfigMap", "name": "c", "namespace": "a"});
    let of = |kind: &str| {
        let mut wanted = wanted.clone();
        wanted["kind"] = kind.into();
        wanted
    };
    for operation in ["get_resource", "list_resources_all", "list_resources_by_namespace"] {
        let what = format!("kubernetes {operation}");
        let Some(policy) = does(&what, of("ConfigMap"), granted.clone(), "") else { return };
        let (result, review) = ask(&policy, &request(), None).await;
        assert!(result.is_ok(), "{operation}");
        let found: Value = serde_json::from_str(&review.warnings()[0]).expect("JSON");
        let object = if operation == "get_resource" { &found } else { &found["items"][0] };
        assert_eq!(object["metadata"]["name"], "c", "{operation}");

        let refused = "Policy has not been granted access to Kubernetes v1/Secret resources. The violation has been reported.";
        let policy = does(&what, of("Secret"), granted.clone(), "").expect("Go");
        assert_eq!(denial(ask(&policy, &request(), None).await.0).to_string(), refused);
        let refused = format!(
            "Policy has not been granted access to the 'kubernetes/{operation}' host capability. The violation has been reported."
        );
        let policy =
            does(&what, of("ConfigMap"), granted.clone(), "hostCapabilities: ['oci/*']").expect("Go");
        assert_eq!(denial(ask(&policy, &request(), None).await.0).to_string(), refused);
        assert!(
            does(&what, of("ConfigMap"), granted.clone(), "hostCapabilities: ['kubernetes/*']").is_some()
        );
    }
}

#[tokio::test]
async fn what_there_is_not_is_refused_by_name() {
    for (what, text) in [
        (
            "kubernetes can_i",
            "Policy has not been granted access to the 'kubernetes/can_i' host capability. The violation has been reported.",
        ),
        (
            "oci v1/verify",
            "Policy has not been granted access to the 'oci/v1/verify' host capability. The violation has been reported.",
        ),
        (
            "net v1/dns_lookup_host",
            "Policy has not been granted access to the 'net/v1/dns_lookup_host' host capability. The violation has been reported.",
        ),
        ("oci v9/verify", "unknown operation: v9/verify"),
        ("tracing x", "unknown operation: x"),
        ("files read", "unknown namespace: files"),
    ] {
        let Some(policy) = does(what, json!({}), json!({}), "") else { return };
        assert_eq!(denial(ask(&policy, &request(), None).await.0).to_string(), text);
    }
    let Some(policy) = does("tracing log", json!({"level": "info", "message": "hello"}), json!({}), "")
    else {
        return;
    };
    assert!(ask(&policy, &request(), None).await.0.is_ok());
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

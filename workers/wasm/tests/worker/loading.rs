//! Documents, and where their modules are.

use std::sync::mpsc::channel;
use std::time::Duration;

use admission_gateway_wasm::loading::{Loader, Sources};
use admission_gateway_worker::json;

use crate::folder::{Folder, document, guest, quick};

const ALLOWS: &str = r#"{"accepted":true}"#;

/// A module with the custom section of `kwctl annotate`.
fn annotated(metadata: &str) -> Vec<u8> {
    let name = "io.kubewarden.metadata";
    let size = name.len() + 1 + metadata.len();
    assert!(size < 128, "one byte of LEB128");
    let mut module = b"\0asm\x01\0\0\0\0".to_vec();
    module.push(u8::try_from(size).expect("small"));
    module.push(u8::try_from(name.len()).expect("small"));
    module.extend(name.bytes().chain(metadata.bytes()));
    module
}

#[test]
fn every_problem_is_told_with_its_place() {
    let folder = Folder::new();
    folder.write("module.wat", guest("", "", ALLOWS));
    let mut namespaced = document("n", json!({}));
    namespaced["kind"] = "AdmissionPolicy".into();
    let mut old = document("o", json!({}));
    old["apiVersion"] = "policies.kubewarden.io/v1alpha1".into();
    let mut group = document("g", json!({}));
    group["kind"] = "ClusterAdmissionPolicyGroup".into();
    let mut reading = document("r", json!({"contextAwareResources": [{"apiVersion": "v1", "kind": "Pod"}]}));
    reading["kind"] = "AdmissionPolicy".into();
    reading["metadata"]["namespace"] = "a".into();
    let mode = document("m", json!({"mode": "shout"}));
    let all = [namespaced, old, group, mode, json!({"kind": "Pod"}), reading];
    let text: Vec<_> = all.iter().map(ToString::to_string).collect();
    folder.write("all.yaml", text.join("\n---\n"));
    let place = folder.0.join("all.yaml").display().to_string();
    let problems = folder.problems();
    for (index, wanted) in [
        "metadata.namespace is required",
        "apiVersion: found policies.kubewarden.io/v1alpha1, expected policies.kubewarden.io/v1 or",
        "kind: found ClusterAdmissionPolicyGroup, which this worker cannot run",
        "spec: unknown variant `shout`",
        "apiVersion and kind are required",
        "spec.contextAwareResources: only a ClusterAdmissionPolicy has them",
    ]
    .into_iter()
    .enumerate()
    {
        let wanted = format!("{place}:{}: {wanted}", index + 1);
        assert!(problems[index].starts_with(&wanted), "{} is not {wanted}", problems[index]);
    }
    folder.write("all.yaml", "a: [");
    assert!(folder.problems()[0].starts_with(&place));
    folder.write("all.yaml", "");
    assert!(folder.problems()[0].ends_with("there is no ClusterAdmissionPolicy or AdmissionPolicy"));
}

#[test]
fn modules_are_found_beside_documents_and_by_reference() {
    let module = guest("", "", ALLOWS);
    let reference = "registry://ghcr.io/kubewarden/policies/one:v1.0.5";
    for (module_path, spec) in [
        ("sub/module.wat", json!({"module": "file:sub/module.wat"})),
        ("ghcr.io/kubewarden/policies/one:v1.0.5.wasm", json!({"module": reference})),
        ("modules/ghcr.io/kubewarden/policies/one:v1.0.5.wasm", json!({"module": reference})),
        (
            "registry/ghcr.io/kubewarden/policies/one:v1.0.5",
            json!({"module": "ghcr.io/kubewarden/policies/one:v1.0.5"}),
        ),
        ("https/example.com/one.wasm", json!({"module": "https://example.com/one.wasm"})),
    ] {
        let folder = Folder::new();
        folder.write(module_path, &module);
        folder.policy(spec);
        assert_eq!(folder.loader(quick()).ready().expect(module_path).len(), 1);
    }
    let folder = Folder::new();
    for (reference, wanted) in [
        (
            reference,
            "the worker asks no registry: it looks for ghcr.io/kubewarden/policies/one:v1.0.5.wasm below",
        ),
        ("registry://../../etc/x:1", "expected file:PATH or a reference"),
        ("s3://x/y", "expected file:PATH or a reference"),
        ("file:absent.wasm", "there is no file"),
    ] {
        folder.policy(json!({"module": reference}));
        let problems = folder.problems();
        assert!(problems[0].contains(&format!("p: spec.module: {wanted}")), "{problems:?}");
    }
}

#[test]
fn the_store_of_kwctl_is_followed() {
    let digest = format!("sha256:{}", "ab".repeat(32));
    for (reference, file) in [
        ("registry://a.example/policies/one:v1.0.5", "registry/a.example/policies/one:v1.0.5"),
        ("a.example/policies/one:v1.0.5", "registry/a.example/policies/one:v1.0.5"),
        (
            "registry://a.example:5000/some/path/one.wasm:1.0.0",
            "registry/a.example:5000/some/path/one.wasm:1.0.0",
        ),
        ("a.example:5000/one:v1", "registry/a.example:5000/one:v1"),
        ("registry://a.example/one", "registry/a.example/one:latest"),
        ("registry://a.example:5000/one", "registry/a.example:5000/one:latest"),
        (&format!("registry://a.example/one@{digest}"), &format!("registry/a.example/one@{digest}")),
        ("https://a.example/releases/1.0.0/one.wasm", "https/a.example/releases/1.0.0/one.wasm"),
        ("https://A.example:443/one.wasm", "https/a.example/one.wasm"),
        ("http://a.example:8080/one.wasm", "http/a.example:8080/one.wasm"),
    ] {
        let (folder, store) = (Folder::new(), Folder::new());
        store.write(file, guest("", "", ALLOWS));
        folder.policy(json!({"module": reference}));
        let sources = Sources {
            policies: vec![folder.0.clone()],
            modules: vec![store.0.clone()],
            ..Sources::default()
        };
        let found = Loader::new(sources, quick()).expect("an engine").ready();
        assert_eq!(found.unwrap_or_else(|problems| panic!("{reference}: {problems:?}")).len(), 1);
    }
}

#[test]
fn modules_of_other_kinds_are_refused_by_name() {
    for (metadata, wanted) in [
        (
            r#"{"executionMode":"gatekeeper"}"#,
            "executionMode gatekeeper is not run here: write its Rego as a ConstraintTemplate",
        ),
        (r#"{"executionMode":"opa"}"#, "executionMode opa is not run here"),
        (r#"{"executionMode":"other"}"#, "executionMode: found other, expected kubewarden-wapc or wasi"),
        (r#"{"executionMode":"wasi"}"#, "the module exports no _start"),
        (r#"{"protocolVersion":"v1"}"#, "the module exports no _start"),
        ("{", "section io.kubewarden.metadata: EOF"),
    ] {
        let folder = Folder::new();
        folder.write("module.wasm", annotated(metadata));
        folder.policy(json!({"module": "file:module.wasm"}));
        assert!(folder.problems()[0].contains(wanted), "{:?} for {metadata}", folder.problems());
    }
    for (module, wanted) in [
        (b"\0asm\x01\0\0\0\0\xff\xff".to_vec(), "the sections of the module are cut off"),
        (b"nonsense".to_vec(), "module.wasm: "),
        (
            br#"(module (import "env" "run" (func)) (func (export "_start")))"#.to_vec(),
            "unknown import: `env::run`",
        ),
        (br#"(module (func (export "opa_eval_ctx_new")))"#.to_vec(), "the module is compiled Rego"),
    ] {
        let folder = Folder::new();
        folder.write("module.wasm", module);
        folder.policy(json!({"module": "file:module.wasm"}));
        assert!(folder.problems()[0].contains(wanted), "{:?}", folder.problems());
    }
}

#[test]
fn modules_judge_their_protocol_and_settings() {
    let good = guest("", "", ALLOWS);
    let other = |from: &str, to: &str| good.replace(from, to);
    for (module, wanted) in [
        (other(r#""\"v1\"""#, r#""\"v9\"""#), "protocol_version: found \"v9\", expected \"v1\""),
        (
            other(r#"{\"valid\":true}"#, r#"{\"valid\":1.5} "#),
            "validate_settings: the answer of the module: invalid type",
        ),
        (
            other(r#"{\"valid\":true}"#, r#"{\"valid\":false}"#).replace("(i32.const 14)", "(i32.const 15)"),
            "spec.settings: the module refuses them: the module gives no reason",
        ),
    ] {
        let folder = Folder::new();
        folder.write("module.wat", module);
        folder.policy(json!({}));
        assert!(folder.problems()[0].contains(wanted), "{:?}", folder.problems());
    }
}

#[test]
fn a_folder_is_read_again_after_a_change() {
    let folder = Folder::new();
    folder.write("module.wat", guest("", "", ALLOWS));
    folder.policy(json!({}));
    let mut loader = folder.loader(quick());
    assert_eq!(loader.load().expect("good").len(), 1);
    let (send, applied) = channel();
    std::thread::spawn(move || {
        loader.follow(Duration::from_millis(5), |policies| {
            send.send(policies.len()).map_err(|gone| vec![gone.to_string()])
        });
    });
    // What is broken is not applied, and what follows it is.
    folder.write("more.yaml", "kind: [");
    std::thread::sleep(Duration::from_millis(50));
    folder.write("more.yaml", document("q", json!({})).to_string());
    assert_eq!(applied.recv_timeout(Duration::from_secs(60)).expect("applied"), 2);
}

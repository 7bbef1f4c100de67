//! A guest in Rust, with the library that policies of Kubewarden in Rust have.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use admission_gateway_worker::{Denied, json};

use crate::api::parsed;
use crate::folder::{Folder, ask, denial, document, quick, request};

/// The targets that Kubewarden's policies are built for, the usual one first.
const TARGETS: [&str; 2] = ["wasm32-wasip1", "wasm32-unknown-unknown"];

fn is_installed(target: &str) -> bool {
    let asked = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    asked.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_dir())
}

/// Builds the guest for a target.
fn built(target: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guest-rust");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--target", target, "--target-dir"])
        .arg(&folder)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest-rust"))
        .status();
    assert!(status.expect("cargo").success(), "the guest cannot be built");
    std::fs::read(folder.join(target).join("release/guest.wasm")).expect("built")
}

#[tokio::test]
async fn a_guest_in_rust_is_run() {
    let targets: Vec<_> = TARGETS.into_iter().filter(|target| is_installed(target)).collect();
    if targets.is_empty() {
        eprintln!("skipped: rustup has none of the targets {}", TARGETS.join(", "));
    }
    for target in targets {
        let folder = Folder::new();
        folder.write("module.wasm", built(target));
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "a"}});
        folder.write("objects/c.json", config.to_string());
        let payload = json!({"api_version": "v1", "kind": "ConfigMap", "name": "c", "namespace": "a"});
        let granted = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        let of = |what: &str| {
            let settings = json!({"do": what, "payload": payload});
            let spec = json!({"module": "file:module.wasm", "settings": settings, "mutating": true,
                "contextAwareResources": granted});
            document(what.split('_').next().expect("a word"), spec)
        };
        let documents = ["accept", "reject", "mutate", "get_resource", "fail", "panic"].map(of);
        folder.write("policies.json", json!({"kind": "List", "items": documents}).to_string());
        let found = folder.loader(quick()).ready().expect("good policies");
        let found: Vec<_> = found.into_iter().map(Arc::new).collect();
        assert!(ask(&found[0], &request(), None).await.0.is_ok());
        assert_eq!(denial(ask(&found[1], &request(), None).await.0), Denied::new("not \"web\"").code(422));
        let (_, review) = ask(&found[2], &request(), None).await;
        assert_eq!(
            review.changes().expect("a patch"),
            [json!({"op": "add", "path": "/seen", "value": true})]
        );
        let (_, review) = ask(&found[3], &request(), None).await;
        assert_eq!(parsed(review.warnings()[0].as_bytes())["metadata"]["name"], "c");
        for (policy, text) in [(&found[4], "validate: "), (&found[5], "unreachable")] {
            let told = denial(ask(policy, &request(), None).await.0).to_string();
            assert!(told.starts_with("internal server error: ") && told.contains(text), "{told}");
        }
        folder.write("policies.json", document("p", json!({"module": "file:module.wasm"})).to_string());
        assert!(folder.problems()[0].ends_with("spec.settings: the module refuses them: do is required"));
    }
}

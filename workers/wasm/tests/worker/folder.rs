//! Folders with documents and modules.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use admission_gateway_wasm::engine::Bounds;
use admission_gateway_wasm::loading::{Loader, Sources};
use admission_gateway_wasm::policy::{Action, Parameters, Ready};
use admission_gateway_worker::{Denied, Result, Review, Value, json};

/// A folder below the target's, removed when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, content).expect("written");
    }

    /// Writes the document of the policy `p` with the module `module.wat`.
    pub fn policy(&self, spec: Value) {
        self.write("policy.json", document("p", spec).to_string());
    }

    pub fn loader(&self, bounds: Bounds) -> Loader {
        let sources = Sources { policies: vec![self.0.clone()], ..Sources::default() };
        Loader::new(sources, bounds).expect("an engine")
    }

    pub fn problems(&self) -> Vec<String> {
        self.loader(quick()).ready().map(|found| found.len()).expect_err("problems")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A document of a policy, with defaults for what `spec` does not have.
pub fn document(name: &str, spec: Value) -> Value {
    let mut all = json!({"module": "file:module.wat", "mutating": false, "rules": []});
    all.as_object_mut().expect("one").extend(spec.as_object().expect("one").clone());
    json!({"apiVersion": "policies.kubewarden.io/v1", "kind": "ClusterAdmissionPolicy", "metadata": {"name": name}, "spec": all})
}

/// More time than anything here takes.
pub fn quick() -> Bounds {
    Bounds { timeout: Duration::from_secs(30), ..Bounds::default() }
}

/// Text as a string of WebAssembly's text format.
fn quoted(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}

/// A waPC guest: `body` runs at each `validate`, `more` stands beside the functions; then it answers `verdict`.
pub fn guest(more: &str, body: &str, verdict: &str) -> String {
    let length = verdict.len();
    format!(
        r#"(module
        (import "wapc" "__guest_request" (func $request (param i32 i32)))
        (import "wapc" "__guest_response" (func $response (param i32 i32)))
        (import "wapc" "__guest_error" (func $error (param i32 i32)))
        (import "wapc" "__host_call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        (import "wapc" "__host_response_len" (func $response_len (result i32)))
        (import "wapc" "__host_response" (func $host_response (param i32)))
        (import "wapc" "__host_error_len" (func $error_len (result i32)))
        (import "wapc" "__host_error" (func $host_error (param i32)))
        (import "wapc" "__console_log" (func $log (param i32 i32)))
        (memory (export "memory") 4)
        (data (i32.const 0) "\"v1\"")
        (data (i32.const 16) "{{\"valid\":true}}")
        (data (i32.const 1024) "{}")
        {more}
        (func (export "__guest_call") (param $operation i32) (param $length i32) (result i32)
            (if (i32.eq (local.get $operation) (i32.const 16))
                (then (call $response (i32.const 0) (i32.const 4)) (return (i32.const 1))))
            (if (i32.eq (local.get $operation) (i32.const 17))
                (then (call $response (i32.const 16) (i32.const 14)) (return (i32.const 1))))
            {body}
            (call $response (i32.const 1024) (i32.const {length}))
            (i32.const 1)))"#,
        quoted(verdict)
    )
}

/// The policy with this module and spec, the only one of a folder.
pub fn ready(module: &str, spec: Value, bounds: Bounds) -> Arc<Ready> {
    let folder = Folder::new();
    folder.write("module.wat", module);
    folder.policy(spec);
    let mut found = folder.loader(bounds).ready().expect("a good policy");
    Arc::new(found.remove(0))
}

pub fn request() -> Value {
    json!({"uid": "1", "name": "web", "operation": "CREATE", "object": {"kind": "Pod", "n": 1}})
}

/// What the policy answers, and the review after it.
pub async fn ask(policy: &Arc<Ready>, request: &Value, action: Option<Action>) -> (Result, Review) {
    let mut review = Review::from_json(request).with_parameters(Parameters { action });
    let result = policy.evaluate(&mut review).await;
    (result, review)
}

/// The denial of a result that is one.
pub fn denial(result: Result) -> Denied {
    result.expect_err("denied").denied().expect("a denial, no failure").clone()
}

/// The guest in Go, compiled once; `None` without Go.
pub fn program() -> Option<&'static [u8]> {
    static BUILT: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
        let target =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{}.wasm", std::process::id()));
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&target)
            .arg(".")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest"))
            .env("GOOS", "wasip1")
            .env("GOARCH", "wasm")
            .status();
        match built {
            Ok(status) => assert!(status.success(), "go build failed"),
            Err(_) => {
                eprintln!("skipped: there is no Go");
                return None;
            }
        }
        let module = std::fs::read(&target).expect("built");
        let _ = std::fs::remove_file(target);
        Some(module)
    });
    BUILT.as_deref()
}

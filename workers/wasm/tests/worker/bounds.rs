//! Modules that loop, allocate, trap, recurse and lie.

use std::time::Duration;

use admission_gateway_wasm::engine::Bounds;
use admission_gateway_worker::{Denied, json};

use crate::folder::{Folder, ask, denial, guest, quick, ready, request};

const ALLOWS: &str = r#"{"accepted":true}"#;

/// The text of the internal error of a module with this body, at two calls: it can be called again.
async fn broken(more: &str, body: &str, verdict: &str) -> String {
    let policy = ready(&guest(more, body, verdict), json!({}), quick());
    let first = denial(ask(&policy, &request(), None).await.0);
    assert_eq!(denial(ask(&policy, &request(), None).await.0), first);
    let text = first.to_string();
    assert_eq!(first, Denied::new(&text).code(500));
    text
}

#[tokio::test]
async fn what_loops_is_interrupted() {
    let bounds = Bounds { timeout: Duration::from_millis(50), ..Bounds::default() };
    let wanted =
        Denied::new("Policy execution interrupted because it exceeded the allowed execution time").code(500);
    let policy = ready(&guest("", "(loop $again (br $again))", ALLOWS), json!({}), bounds.clone());
    for _ in 0..2 {
        assert_eq!(denial(ask(&policy, &request(), None).await.0), wanted);
    }
    // In the host, too.
    let calls = "(loop $again (call $log (i32.const 0) (i32.const 4)) (br $again))";
    let policy = ready(&guest("", calls, ALLOWS), json!({}), bounds.clone());
    assert_eq!(denial(ask(&policy, &request(), None).await.0), wanted);
    // When an instance begins.
    let folder = Folder::new();
    folder.write("module.wat", guest("(func $s (loop $again (br $again))) (start $s)", "", ALLOWS));
    folder.policy(json!({}));
    let problems = folder.loader(bounds).ready().map(|found| found.len()).expect_err("a problem");
    assert!(problems[0].ends_with("exceeded the allowed execution time"), "{problems:?}");
}

#[tokio::test]
async fn memory_is_bounded() {
    // Grows by 1 MiB until that fails, then says how many times it did by a code.
    let body = "(local $n i32)
        (loop $again
            (if (i32.ne (memory.grow (i32.const 16)) (i32.const -1))
                (then (local.set $n (i32.add (local.get $n) (i32.const 1))) (br $again))))
        (if (i32.ne (local.get $n) (i32.const 7)) (then unreachable))";
    let (locals, body) = body.split_once('\n').expect("two parts");
    let module = guest("", "", ALLOWS)
        .replace("(result i32)\n            (if", &format!("(result i32) {locals}\n{body}\n(if"));
    let policy = ready(&module, json!({}), Bounds { memory_bytes: 8 << 20, ..quick() });
    assert!(ask(&policy, &request(), None).await.0.is_ok());
    let folder = Folder::new();
    folder.write("module.wat", "(module (memory (export \"memory\") 2000) (func (export \"__guest_call\") (param i32 i32) (result i32) (i32.const 0)))");
    folder.policy(json!({}));
    let problems =
        folder.loader(Bounds { memory_bytes: 8 << 20, ..quick() }).ready().map(|found| found.len());
    assert!(problems.expect_err("too large")[0].contains("memory"));
}

#[tokio::test]
async fn what_breaks_is_an_internal_error_and_breaks_nothing_else() {
    assert_eq!(
        broken("", "unreachable", ALLOWS).await,
        "internal server error: the module failed: wasm trap: wasm `unreachable` instruction executed"
    );
    let recursive = "(func $deep (param i32) (call $deep (i32.add (local.get 0) (i32.const 1))) (call $log (local.get 0) (i32.const 0)))";
    assert!(broken(recursive, "(call $deep (i32.const 0))", ALLOWS).await.contains("call stack exhausted"));
    for (call, what) in [
        ("(call $response (i32.const 0) (i32.const -1))", "__guest_response: 4294967295 bytes"),
        ("(call $response (i32.const -4) (i32.const 8))", "__guest_response: 8 bytes"),
        ("(call $error (i32.const 262143) (i32.const 2))", "__guest_error: 2 bytes"),
        ("(call $request (i32.const 262140) (i32.const 0))", "__guest_request: 8 bytes"),
        (
            "(drop (call $call (i32.const 0) (i32.const -1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "__host_call: 4294967295 bytes",
        ),
    ] {
        let text = broken("", call, ALLOWS).await;
        let wanted = format!(
            "internal server error: the module failed: {what}, which are not all in the module's memory"
        );
        assert_eq!(text, wanted);
    }
    for (body, verdict, what) in [
        ("", "{", "the module's answer cannot be read"),
        ("", r#"{"accepted":"yes"}"#, "the module's answer cannot be read"),
        ("", "", "the module's answer cannot be read"),
        ("(return (i32.const 1))", ALLOWS, "gave no response"),
        ("(return (i32.const 0))", ALLOWS, "failed, without a reason"),
        ("(return (i32.const 7))", ALLOWS, "failed, without a reason"),
    ] {
        let text = broken("", body, verdict).await;
        assert!(text.starts_with("internal server error: ") && text.contains(what), "{text}");
    }
    // Requests that lie over each other are the guest's own problem.
    let overlap = "(call $request (i32.const 2048) (i32.const 2050))";
    assert!(ask(&ready(&guest("", overlap, ALLOWS), json!({}), quick()), &request(), None).await.0.is_ok());
}

#[tokio::test]
async fn nothing_is_kept_between_evaluations() {
    let counts = "(global.set $n (i32.add (global.get $n) (i32.const 1)))
                  (if (i32.ne (global.get $n) (i32.const 1)) (then unreachable))";
    let policy = ready(&guest("(global $n (mut i32) (i32.const 0))", counts, ALLOWS), json!({}), quick());
    for _ in 0..3 {
        assert!(ask(&policy, &request(), None).await.0.is_ok());
    }
}

#[test]
fn a_policy_that_loops_delays_no_other() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads");
    runtime.block_on(async {
        let slow = json!({"timeoutEvalSeconds": 30});
        let loops = ready(&guest("", "(loop $again (br $again))", ALLOWS), slow, quick());
        let allows = ready(&guest("", "", ALLOWS), json!({}), quick());
        for _ in 0..20 {
            let loops = loops.clone();
            tokio::spawn(async move { ask(&loops, &request(), None).await.0.is_ok() });
        }
        for _ in 0..20 {
            assert!(ask(&allows, &request(), None).await.0.is_ok());
        }
    });
    // Without those that still run.
    runtime.shutdown_background();
}

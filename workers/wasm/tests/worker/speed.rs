//! How long things take: `cargo test --release -- --ignored --nocapture speed`.

use std::fs;
use std::time::Instant;

use admission_gateway_worker::json;

use crate::folder::{Folder, ask, guest, program, quick, request};

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[tokio::test]
#[ignore = "prints figures, and checks nothing"]
async fn speed() {
    let allows = guest("", "", r#"{"accepted":true}"#);
    let modules =
        [("waPC", Some(allows.into_bytes()), 2000), ("WASI, in Go", program().map(<[u8]>::to_vec), 100)];
    for (name, module, count) in modules {
        let Some(module) = module else { continue };
        let folder = Folder::new();
        folder.write("module.wasm", &module);
        let settings = json!({"module": "file:module.wasm", "settings": {"do": "accept"}});
        folder.policy(settings);
        let before = resident_kib();
        let started = Instant::now();
        let mut found = folder.loader(quick()).ready().expect("a good policy");
        let loaded = started.elapsed();
        let policy = std::sync::Arc::new(found.remove(0));
        let started = Instant::now();
        for _ in 0..count {
            assert!(ask(&policy, &request(), None).await.0.is_ok());
        }
        let each = started.elapsed().as_secs_f64() * 1000.0 / f64::from(count);
        let kib = resident_kib() - before;
        println!("{name}: load {loaded:?}, {each:.3} ms per review, {kib} KiB more");
    }
}

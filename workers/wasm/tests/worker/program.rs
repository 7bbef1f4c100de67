//! The program.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use admission_gateway_worker::json;

use crate::folder::{Folder, guest};

const BINARY: &str = env!("CARGO_BIN_EXE_admission-gateway-wasm");

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(arguments).output().expect("it is built");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_serves_the_policies_of_its_folders() {
    let folder = Folder::new();
    folder.write("module.wat", guest("", "", r#"{"accepted":true}"#));
    folder.policy(json!({}));
    let path = folder.0.display().to_string();
    let arguments = ["--policies", &path, "--listen", "127.0.0.1:0", "--memory=16", "--eval-timeout", "1"];
    let child = Command::new(BINARY).args(arguments).stderr(Stdio::piped()).spawn().expect("it is built");
    let mut running = Running(child);
    let stderr = running.0.stderr.take().expect("a pipe");
    let line = BufReader::new(stderr).lines().next().expect("a line").expect("UTF-8");
    assert!(line.starts_with("worker: serving 1 policies on 127.0.0.1:"), "{line}");
}

#[test]
fn what_cannot_be_served_is_told() {
    assert_eq!(
        run(&[]),
        (
            Some(1),
            "worker: --policies is required: a folder with documents of Kubewarden; or --cluster\n"
                .to_owned()
        )
    );
    assert_eq!(
        run(&["--policies", "/no/such"]),
        (Some(2), "worker: --policies: '/no/such' is not a folder\n".to_owned())
    );
    for (arguments, told) in [
        (["--kubeconfig", "x"].as_slice(), "worker: --kubeconfig: has an effect with --cluster only\n"),
        (
            &["--cluster", "--kubeconfig", "/no/such"],
            "worker: /no/such: No such file or directory (os error 2)\n",
        ),
    ] {
        assert_eq!(run(arguments), (Some(1), told.to_owned()));
    }
    for bad in ["--memory=0", "--memory=x", "--eval-timeout=0", "--eval-timeout=31"] {
        assert_eq!(run(&[bad]).0, Some(2), "{bad}");
    }
    let folder = Folder::new();
    folder.write("a.yaml", "kind: A");
    folder.write("b.yaml", "kind: B");
    let (status, said) = run(&["--policies", &folder.0.display().to_string()]);
    assert_eq!((status, said.lines().count()), (Some(1), 2), "{said}");
}

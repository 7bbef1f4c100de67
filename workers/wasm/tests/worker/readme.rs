//! The page of the worker.

use std::process::Command;

use crate::folder::{Folder, guest, quick};

const PAGE: &str = include_str!("../../README.md");

#[test]
fn the_document_of_the_page_is_served() {
    let folder = Folder::new();
    let document =
        PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a document");
    folder.write("policy.yaml", document);
    folder.write(
        "ghcr.io/kubewarden/policies/pod-privileged:v1.0.5.wasm",
        guest("", "", r#"{"accepted":true}"#),
    );
    assert_eq!(folder.loader(quick()).ready().expect("a good policy").len(), 1);
}

#[test]
fn the_page_has_the_options_of_the_program() {
    let output = Command::new(env!("CARGO_BIN_EXE_admission-gateway-wasm")).arg("--help").output();
    let help = String::from_utf8(output.expect("it is built").stdout).expect("UTF-8");
    for option in ["--policies DIR", "--modules DIR", "--memory MIB", "--eval-timeout SECONDS"] {
        assert!(help.contains(option) && PAGE.contains(&format!("| `{option}` |")), "{option}");
    }
}

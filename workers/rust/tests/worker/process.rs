//! A worker as a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

/// The samples, running; ended when dropped.
pub struct Worker {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub addresses: Vec<String>,
}

impl Worker {
    /// Starts it and waits until it serves.
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().expect("the samples are built");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("UTF-8");
        let said = line.trim_end().strip_prefix("worker: serving 12 policies on ");
        let Some(addresses) = said else {
            child.kill().expect("still ours");
            child.wait().expect("still ours");
            panic!("it said {line:?}");
        };
        let addresses = addresses.split(", ").map(str::to_owned).collect();
        Self { child, stderr, addresses }
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }

    /// Waits for its end; returns the status and what else it said.
    pub fn wait(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("UTF-8");
        (self.child.wait().expect("still ours"), said)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it to its end; returns the exit status, what it said and what it printed.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = command(arguments).output().expect("the samples are built");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit status"), text(output.stderr), text(output.stdout))
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samples"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A path for a socket; what is there is removed when it is dropped.
pub struct Socket(pub PathBuf);

impl Socket {
    pub fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("worker-{}-{name}.sock", std::process::id())))
    }

    pub fn address(&self) -> String {
        format!("unix:{}", self.0.display())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

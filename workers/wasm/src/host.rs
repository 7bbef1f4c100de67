//! What guests can call: the log, and reads of Kubernetes objects that the document grants.
//!
//! Source: github.com/kubewarden/policy-evaluator src/runtimes/callback.rs.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wasmtime::{Caller, Memory, StoreLimits};

use crate::cluster::Cluster;
use crate::documents::Resource;
use crate::objects::Objects;

/// Limit of what a guest sends: a request of the largest review with its copy as changed object.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// Limit of a payload of a host call. The longest is a log event.
const MAX_CALL_BYTES: usize = 1 << 20;

/// Records of the log in one evaluation, and characters of each.
const MAX_RECORDS: usize = 32;
const MAX_CHARACTERS: usize = 1000;

/// Calls of the host in one evaluation, which also end at its deadline.
const MAX_CALLS: usize = 10_000;

/// The operations that Kubewarden has and this worker refuses: each would be a request over the network.
const REFUSED: [(&str, &[&str]); 3] = [
    ("oci", &["v1/verify", "v2/verify", "v1/manifest_digest", "v1/oci_manifest", "v1/oci_manifest_config"]),
    ("net", &["v1/dns_lookup_host"]),
    ("crypto", &["v1/is_certificate_trusted"]),
];

/// Where objects are read.
#[derive(Debug)]
pub enum Reads {
    /// The folders' own, which stand for the cluster's.
    Folders(Objects),
    /// By requests.
    Cluster(Arc<Cluster>),
}

/// What a policy may use.
#[derive(Debug)]
pub struct Rights {
    /// The name, for the log.
    pub policy: String,
    /// contextAwareResources of the document.
    pub resources: Vec<Resource>,
    /// hostCapabilities of the module: patterns such as `kubernetes/*`. `None`: not stated, so all that there is.
    pub capabilities: Option<BTreeSet<String>>,
    /// The objects of the cluster.
    pub reads: Arc<Reads>,
}

impl Rights {
    fn has_capability(&self, path: &str) -> bool {
        self.capabilities.as_ref().is_none_or(|patterns| {
            patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => pattern == path,
            })
        })
    }
}

/// The state of one instance.
pub(crate) struct Host {
    pub(crate) limits: StoreLimits,
    pub(crate) rights: Arc<Rights>,
    pub(crate) deadline: Instant,
    pub(crate) wapc: Exchange,
    pub(crate) wasi: Streams,
    records: usize,
    calls: usize,
}

/// One call of a waPC guest.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) operation: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) response: Option<Vec<u8>>,
    pub(crate) error: Option<Vec<u8>>,
    /// Of the last host call.
    pub(crate) host_response: Vec<u8>,
    pub(crate) host_error: Vec<u8>,
}

/// What a WASI guest reads and writes.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) arguments: Vec<String>,
    pub(crate) input: Vec<u8>,
    pub(crate) read: usize,
    pub(crate) output: Vec<u8>,
    /// An unfinished line of stderr.
    pub(crate) line: Vec<u8>,
}

impl Host {
    pub(crate) fn new(limits: StoreLimits, rights: &Arc<Rights>, deadline: Instant) -> Self {
        Self {
            limits,
            rights: Arc::clone(rights),
            deadline,
            wapc: Exchange::default(),
            wasi: Streams::default(),
            records: 0,
            calls: 0,
        }
    }

    /// Writes a record of the policy into the worker's log.
    pub(crate) fn log(&mut self, level: &str, text: &str) {
        self.records += 1;
        if self.records > MAX_RECORDS {
            return;
        }
        let text: String = text.trim().chars().take(MAX_CHARACTERS).collect();
        let more = if self.records == MAX_RECORDS { " (what follows is left out)" } else { "" };
        eprintln!("worker: policy={:?} {level} {text:?}{more}", self.rights.policy);
    }

    /// Answers a host call; the error is for the guest.
    pub(crate) fn call(
        &mut self,
        binding: &str,
        namespace: &str,
        operation: &str,
        payload: &[u8],
    ) -> Result<Vec<u8>, String> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(format!("more than {MAX_CALLS} calls of the host in one evaluation"));
        }
        if payload.len() > MAX_CALL_BYTES {
            return Err(format!("the payload has {} bytes, more than {MAX_CALL_BYTES}", payload.len()));
        }
        if binding != "kubewarden" {
            return Err(format!("unknown binding: {binding}"));
        }
        match (namespace, operation) {
            ("tracing", "log") => {
                self.trace(payload);
                Ok(Vec::new())
            }
            ("kubernetes", "list_resources_all" | "list_resources_by_namespace" | "get_resource") => {
                let answer = self.kubernetes(operation, payload)?;
                if answer.len() > MAX_BYTES {
                    return Err(format!("the answer has {} bytes, more than {MAX_BYTES}", answer.len()));
                }
                Ok(answer)
            }
            ("kubernetes", "can_i") => self.can_i(payload),
            ("tracing" | "kubernetes", _) => Err(format!("unknown operation: {operation}")),
            _ => match REFUSED.iter().find(|(known, _)| *known == namespace) {
                Some((_, operations)) if operations.contains(&operation) => {
                    Err(self.refusal(&format!("{namespace}/{operation}")))
                }
                Some(_) => Err(format!("unknown operation: {operation}")),
                None => Err(format!("unknown namespace: {namespace}")),
            },
        }
    }

    fn refusal(&mut self, path: &str) -> String {
        self.log("ERROR", &format!("the policy called {path}, which this worker refuses"));
        format!(
            "Policy has not been granted access to the '{path}' host capability. The violation has been reported."
        )
    }

    fn trace(&mut self, payload: &[u8]) {
        let event: Value = serde_json::from_slice(payload).unwrap_or_default();
        let level = event["level"].as_str().unwrap_or("info").to_uppercase();
        match level.as_str() {
            "TRACE" | "DEBUG" => {}
            "INFO" | "WARN" | "WARNING" | "ERROR" => {
                let text = event["message"].as_str().map(str::to_owned).unwrap_or_else(|| event.to_string());
                self.log(&level, &text);
            }
            _ => self.log("INFO", &event.to_string()),
        }
    }

    fn kubernetes(&mut self, operation: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
        let wanted: Wanted = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        let path = format!("kubernetes/{operation}");
        if !self.rights.has_capability(&path) {
            return Err(self.refusal(&path));
        }
        let Wanted { api_version, kind, .. } = &wanted;
        let is_granted = |one: &Resource| one.api_version == *api_version && one.kind == *kind;
        if !self.rights.resources.iter().any(is_granted) {
            let text = format!("the policy reads {api_version}/{kind}, not one of its contextAwareResources");
            self.log("ERROR", &text);
            return Err(format!(
                "Policy has not been granted access to Kubernetes {api_version}/{kind} resources. The violation has been \
                 reported."
            ));
        }
        let namespace = match operation {
            "list_resources_by_namespace" => {
                Some(wanted.namespace.as_deref().ok_or("missing field `namespace`")?)
            }
            _ => None,
        };
        let answer = match (&*self.rights.reads, operation) {
            (Reads::Folders(objects), "get_resource") => objects.get(&wanted),
            (Reads::Folders(objects), _) => objects.list(&wanted, namespace),
            (Reads::Cluster(cluster), "get_resource") => cluster.get(&wanted, self.deadline),
            (Reads::Cluster(cluster), _) => cluster.list(&wanted, namespace, self.deadline),
        };
        answer.map_err(|problem| self.callback_failure(&problem))
    }

    /// What a user may do: contextAwareResources do not bound it, as in Kubewarden.
    fn can_i(&mut self, payload: &[u8]) -> Result<Vec<u8>, String> {
        let path = "kubernetes/can_i";
        let Reads::Cluster(cluster) = &*self.rights.reads else { return Err(self.refusal(path)) };
        if !self.rights.has_capability(path) {
            return Err(self.refusal(path));
        }
        let asked: CanI = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        let answer = cluster.can_i(&asked, self.deadline);
        answer.map_err(|problem| self.callback_failure(&problem))
    }

    fn callback_failure(&mut self, problem: &str) -> String {
        self.log("ERROR", problem);
        format!("Callback evaluation failure: {problem}")
    }
}

/// The payload of a read.
#[derive(Debug, Default, Deserialize)]
pub struct Wanted {
    /// Group and version.
    pub api_version: String,
    /// Of the objects.
    pub kind: String,
    /// Of one object.
    #[serde(default)]
    pub name: Option<String>,
    /// Of one object, or of those to list.
    #[serde(default)]
    pub namespace: Option<String>,
    /// As kube-apiserver reads it.
    #[serde(default)]
    pub label_selector: Option<String>,
    /// As kube-apiserver reads it.
    #[serde(default)]
    pub field_selector: Option<String>,
    /// Paths to keep; all else is left out.
    #[serde(default)]
    pub field_masks: Option<BTreeSet<String>>,
    /// Whether one object is asked for anew.
    #[serde(default)]
    pub disable_cache: bool,
}

/// The payload of `can_i`.
#[derive(Debug, Deserialize)]
pub struct CanI {
    /// Who, and what.
    pub subject_access_review: AccessReview,
    /// Whether it is asked anew.
    #[serde(default)]
    pub disable_cache: bool,
}

/// Who wants to do something.
#[derive(Debug, Deserialize, Serialize)]
pub struct AccessReview {
    /// The user's groups.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
    /// What the user wants, as in a SubjectAccessReview.
    pub resource_attributes: Value,
    /// The user.
    pub user: String,
}

/// A guest that ended with a status.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) i32);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the module exited with status {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// The time of the evaluation has passed in a host function.
#[derive(Debug)]
pub(crate) struct TooLate;

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its time has passed")
    }
}

impl std::error::Error for TooLate {}

fn outside(what: &str, length: u32) -> wasmtime::Error {
    wasmtime::Error::msg(format!("{what}: {length} bytes, which are not all in the module's memory"))
}

pub(crate) fn memory_of(caller: &mut Caller<'_, Host>) -> wasmtime::Result<Memory> {
    let memory = caller.get_export("memory").and_then(wasmtime::Extern::into_memory);
    memory.ok_or_else(|| wasmtime::Error::msg("the module exports no memory"))
}

/// Returns a copy of what a guest points at. Pointers and lengths are unsigned: a negative one is beyond any memory.
pub(crate) fn read(
    caller: &mut Caller<'_, Host>,
    what: &str,
    pointer: i32,
    length: i32,
) -> wasmtime::Result<Vec<u8>> {
    let memory = memory_of(caller)?;
    let (pointer, length) = (pointer.cast_unsigned(), length.cast_unsigned());
    let start = pointer as usize;
    let found = memory.data(&*caller).get(start..start.saturating_add(length as usize));
    let found = found.ok_or_else(|| outside(what, length))?;
    if found.len() > MAX_BYTES {
        return Err(wasmtime::Error::msg(format!("{what}: {length} bytes, more than {MAX_BYTES}")));
    }
    Ok(found.to_vec())
}

pub(crate) fn read_text(
    caller: &mut Caller<'_, Host>,
    what: &str,
    pointer: i32,
    length: i32,
) -> wasmtime::Result<String> {
    Ok(String::from_utf8_lossy(&read(caller, what, pointer, length)?).into_owned())
}

pub(crate) fn write(
    caller: &mut Caller<'_, Host>,
    what: &str,
    pointer: i32,
    bytes: &[u8],
) -> wasmtime::Result<()> {
    let memory = memory_of(caller)?;
    let start = pointer.cast_unsigned() as usize;
    let place = memory.data_mut(&mut *caller).get_mut(start..start.saturating_add(bytes.len()));
    let place = place.ok_or_else(|| outside(what, u32::try_from(bytes.len()).unwrap_or(u32::MAX)))?;
    place.copy_from_slice(bytes);
    Ok(())
}

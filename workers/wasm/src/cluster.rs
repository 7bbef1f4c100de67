//! What policies read of a cluster.
//!
//! Answers are kept for some seconds, as Kubewarden keeps objects and what users may do. Its lists are those of a watch,
//! which also lag behind.
//!
//! Source: github.com/kubewarden/kubewarden-controller crates/policy-evaluator/src/callback_handler/kubernetes.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::connection::{Connection, Refusal};
use crate::host::{CanI, Wanted};
use crate::objects::{list_of, masked, not_found};

/// How long answers are kept: Kubewarden's own time. Which kinds there are changes less often.
const KEPT_FOR: Duration = Duration::from_secs(5);
const KINDS_KEPT_FOR: Duration = Duration::from_secs(60);

/// Bounds of what is kept.
const MAX_KEPT: usize = 1000;
const MAX_KEPT_BYTES: usize = 64 << 20;

/// Of one list, over all of its parts.
const MAX_OBJECTS: usize = 50_000;
const MAX_LIST_BYTES: usize = 64 << 20;
/// Objects of one part, as kubectl asks.
const IN_A_PART: usize = 500;
/// An object has at most 1.5 MiB in etcd; a list of kinds less.
const MAX_OBJECT_BYTES: usize = 4 << 20;

/// Reads for policies.
#[derive(Debug)]
pub struct Cluster {
    connection: Arc<Connection>,
    kept: Kept,
}

/// A kind as discovery tells it.
#[derive(Debug, Serialize, Deserialize)]
struct Kind {
    plural: String,
    namespaced: bool,
}

impl Cluster {
    /// Reads by this connection.
    pub fn new(connection: Arc<Connection>) -> Self {
        Self { connection, kept: Kept::default() }
    }

    /// One object as JSON.
    pub fn get(&self, wanted: &Wanted, deadline: Instant) -> Result<Vec<u8>, String> {
        let kind = self.kind(wanted, deadline)?;
        let name = segment("name", wanted.name.as_deref().unwrap_or_default())?;
        let path = match (kind.namespaced, wanted.namespace.as_deref()) {
            (true, None) => {
                let Wanted { api_version, kind, .. } = wanted;
                return Err(format!(
                    "Resource {api_version}/{kind} is namespaced, but no namespace was provided"
                ));
            }
            (true, Some(namespace)) => format!("{}/{name}", path_of(wanted, &kind, Some(namespace))?),
            (false, _) => format!("{}/{name}", path_of(wanted, &kind, None)?),
        };
        let read = || {
            let object =
                self.connection.get(&path, deadline, MAX_OBJECT_BYTES).map_err(|refusal| match refusal {
                    Refusal { status: 404, .. } => not_found(wanted),
                    other => other.to_string(),
                })?;
            serde_json::to_vec(&masked(&trimmed(object), wanted)).map_err(|error| error.to_string())
        };
        if wanted.disable_cache {
            return read();
        }
        self.kept.of(&format!("{path} {:?}", wanted.field_masks), KEPT_FOR, deadline, read)
    }

    /// A list as JSON, of one namespace or of all.
    pub fn list(
        &self,
        wanted: &Wanted,
        namespace: Option<&str>,
        deadline: Instant,
    ) -> Result<Vec<u8>, String> {
        let kind = self.kind(wanted, deadline)?;
        if namespace.is_some() && !kind.namespaced {
            let Wanted { api_version, kind, .. } = wanted;
            return Err(format!(
                "resource {api_version}/{kind} is cluster wide. Cannot search for it inside of a namespace"
            ));
        }
        let mut path = format!("{}?limit={IN_A_PART}", path_of(wanted, &kind, namespace)?);
        for (name, value) in
            [("labelSelector", &wanted.label_selector), ("fieldSelector", &wanted.field_selector)]
        {
            if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
                let _ = write!(path, "&{name}={}", escaped(value));
            }
        }
        let read = || {
            let items = self.items(&path, wanted, deadline)?;
            serde_json::to_vec(&list_of(wanted, items)).map_err(|error| error.to_string())
        };
        self.kept.of(&format!("{path} {:?}", wanted.field_masks), KEPT_FOR, deadline, read)
    }

    fn items(&self, path: &str, wanted: &Wanted, deadline: Instant) -> Result<Vec<Value>, String> {
        let (mut items, mut bytes, mut next) = (Vec::new(), 0, String::new());
        loop {
            let part = format!("{path}{next}");
            let mut list = self
                .connection
                .get(&part, deadline, MAX_LIST_BYTES)
                .map_err(|refusal| refusal.to_string())?;
            let found = match list["items"].take() {
                Value::Array(found) => found,
                _ => return Err("the API server answers no list".to_owned()),
            };
            for object in found {
                let Value::Object(mut object) = object else {
                    return Err("the API server answers a list with an item that is no object".to_owned());
                };
                // Items of a list do not have them.
                object.insert("apiVersion".to_owned(), wanted.api_version.as_str().into());
                object.insert("kind".to_owned(), wanted.kind.as_str().into());
                let object = masked(&trimmed(Value::Object(object)), wanted);
                bytes += object.to_string().len();
                items.push(object);
            }
            if items.len() > MAX_OBJECTS || bytes > MAX_LIST_BYTES {
                return Err(format!(
                    "the list of {}/{} has more than {MAX_OBJECTS} objects or {MAX_LIST_BYTES} bytes",
                    wanted.api_version, wanted.kind
                ));
            }
            match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => next = format!("&continue={}", escaped(token)),
                _ => return Ok(items),
            }
        }
    }

    /// The status of a SubjectAccessReview as JSON.
    pub fn can_i(&self, asked: &CanI, deadline: Instant) -> Result<Vec<u8>, String> {
        let review = &asked.subject_access_review;
        let read = || {
            let body = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": review.user,
                    "groups": review.groups,
                    "resourceAttributes": review.resource_attributes,
                },
            });
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let found = self.connection.post(path, &body, deadline, MAX_OBJECT_BYTES);
            let found = found.map_err(|refusal| refusal.to_string())?;
            if !found["status"].is_object() {
                return Err("SubjectAccessReview did not return a response".to_owned());
            }
            Ok(found["status"].to_string().into_bytes())
        };
        if asked.disable_cache {
            return read();
        }
        let key = serde_json::to_string(review).map_err(|error| error.to_string())?;
        self.kept.of(&format!("can_i {key}"), KEPT_FOR, deadline, read)
    }

    fn kind(&self, wanted: &Wanted, deadline: Instant) -> Result<Kind, String> {
        let Wanted { api_version, kind, .. } = wanted;
        let read = || {
            let found = self.connection.get(&root_of(api_version)?, deadline, MAX_OBJECT_BYTES);
            let found = found
                .map_err(|refusal| format!("error finding resource {api_version} / {kind}: {refusal}"))?;
            let all = found["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_it = |one: &&Value| {
                one["kind"] == kind.as_str() && one["name"].as_str().is_some_and(|name| !name.contains('/'))
            };
            let one = all.iter().find(is_it).ok_or(format!("Cannot find resource {api_version}/{kind}"))?;
            Ok(json!({"plural": one["name"], "namespaced": one["namespaced"]}).to_string().into_bytes())
        };
        let found = self.kept.of(&format!("kind {api_version} {kind}"), KINDS_KEPT_FOR, deadline, read)?;
        serde_json::from_slice(&found).map_err(|error| format!("{api_version}/{kind}: {error}"))
    }
}

fn root_of(api_version: &str) -> Result<String, String> {
    match api_version.split_once('/') {
        None => Ok(format!("/api/{}", segment("apiVersion", api_version)?)),
        Some((group, version)) => {
            Ok(format!("/apis/{}/{}", segment("apiVersion", group)?, segment("apiVersion", version)?))
        }
    }
}

fn path_of(wanted: &Wanted, kind: &Kind, namespace: Option<&str>) -> Result<String, String> {
    let root = root_of(&wanted.api_version)?;
    match namespace {
        Some(namespace) => {
            Ok(format!("{root}/namespaces/{}/{}", segment("namespace", namespace)?, kind.plural))
        }
        None => Ok(format!("{root}/{}", kind.plural)),
    }
}

/// Returns a part of a path for what a policy names, so that it stays one part.
fn segment(what: &str, text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err(format!("{what}: found '{text}', expected a name")),
        _ => Ok(escaped(text)),
    }
}

fn escaped(text: &str) -> String {
    let mut found = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            found.push(char::from(byte));
        } else {
            let _ = write!(found, "%{byte:02X}");
        }
    }
    found
}

/// The object without what Kubewarden leaves out, too.
fn trimmed(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    object
}

/// Answers that are kept. Of several calls for one of them at a time, one asks.
#[derive(Debug, Default)]
struct Kept {
    state: Mutex<Answers>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Answers {
    found: HashMap<String, (Instant, Vec<u8>)>,
    asked: HashSet<String>,
}

/// One that is asked for; ends also in a panic.
struct Asking<'a>(&'a Kept, &'a str);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lock().asked.remove(self.1);
        self.0.changed.notify_all();
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is kept under `key`, or what `read` returns, which is then kept for `age` if it is no error.
    fn of(
        &self,
        key: &str,
        age: Duration,
        deadline: Instant,
        read: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<Vec<u8>, String> {
        let mut answers = self.lock();
        loop {
            let now = Instant::now();
            answers.found.retain(|_, (until, _)| *until > now);
            if let Some((_, found)) = answers.found.get(key) {
                return Ok(found.clone());
            }
            if answers.asked.insert(key.to_owned()) {
                break;
            }
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Err("the time of the evaluation has passed".to_owned());
            }
            answers = self.changed.wait_timeout(answers, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(answers);
        let _asking = Asking(self, key);
        let found = read()?;
        let mut answers = self.lock();
        let kept: usize = answers.found.values().map(|(_, one)| one.len()).sum();
        if answers.found.len() >= MAX_KEPT || kept + found.len() > MAX_KEPT_BYTES {
            answers.found.clear();
        }
        if found.len() <= MAX_KEPT_BYTES {
            answers.found.insert(key.to_owned(), (Instant::now() + age, found.clone()));
        }
        drop(answers);
        Ok(found)
    }
}

//! The policies of a cluster, by list and watch.
//!
//! Source: kubernetes/website content/en/docs/reference/using-api/api-concepts.md (Efficient detection of changes).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::connection::{Connection, Refusal};
use crate::documents::GROUP;

/// The kinds of policies, with those that are refused by name.
const KINDS: [(&str, &str); 4] = [
    ("clusteradmissionpolicies", "ClusterAdmissionPolicy"),
    ("admissionpolicies", "AdmissionPolicy"),
    ("clusteradmissionpolicygroups", "ClusterAdmissionPolicyGroup"),
    ("admissionpolicygroups", "AdmissionPolicyGroup"),
];

/// Of a list.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const MAX_LIST_BYTES: usize = 256 << 20;
/// Of an event: an object has at most 1.5 MiB in etcd.
const MAX_EVENT_BYTES: u64 = 4 << 20;
/// Of a watch: the API server ends it, and otherwise this side.
const WATCH_SECONDS: u64 = 240;
const WATCH_WITHIN: Duration = Duration::from_secs(WATCH_SECONDS + 30);
/// Between two lists that fail, or of a kind that the cluster does not have.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// The policies of a cluster as they are now.
#[derive(Debug, Default)]
pub struct Following {
    state: Mutex<State>,
    listed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By kind and then `NAMESPACE/NAME`. A kind is there once it is listed, or cannot be.
    kinds: BTreeMap<&'static str, BTreeMap<String, Value>>,
    changes: u64,
}

impl Following {
    /// Begins to follow all kinds, each in a thread of its own that never ends.
    pub fn begin(connection: &Arc<Connection>) -> Result<Arc<Self>, String> {
        let made = Arc::new(Self::default());
        for (plural, kind) in KINDS {
            let (following, connection) = (Arc::clone(&made), Arc::clone(connection));
            let name = format!("follow {kind}");
            let follow = move || following.follow(&connection, plural, kind);
            thread::Builder::new().name(name).spawn(follow).map_err(|error| error.to_string())?;
        }
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every kind was listed or cannot be.
    pub fn wait(&self) {
        let mut state = self.lock();
        while state.kinds.len() < KINDS.len() {
            state = self.listed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns all documents, by kind and name.
    pub fn documents(&self) -> Vec<Value> {
        self.lock().kinds.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Returns a number that grows with each change.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    fn follow(&self, connection: &Connection, plural: &str, kind: &'static str) -> ! {
        let path = format!("/apis/{GROUP}/v1/{plural}");
        let (mut told, mut pause) = (String::new(), PAUSES.0);
        loop {
            let followed = self.list(connection, &path, kind).and_then(|version| {
                told.clear();
                pause = PAUSES.0;
                self.watch(connection, &path, kind, &version)
            });
            if let Err(refusal) = followed {
                if [403, 404].contains(&refusal.status) {
                    // Without the kind, or the right to read it, there are none of its policies.
                    self.replace(kind, BTreeMap::new());
                }
                if refusal.status != 410 && refusal.text != told {
                    eprintln!("worker: {plural}.{GROUP}: {refusal}");
                    told.clone_from(&refusal.text);
                }
                pause = (pause * 2).min(PAUSES.1);
            }
            thread::sleep(pause);
        }
    }

    /// Lists a kind, and returns the version from which to watch.
    fn list(&self, connection: &Connection, path: &str, kind: &'static str) -> Result<String, Refusal> {
        let mut list = connection.get(path, Instant::now() + LIST_WITHIN, MAX_LIST_BYTES)?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let Value::Array(items) = list["items"].take() else {
            return Err(Refusal { status: 0, text: "the API server answers no list".to_owned() });
        };
        self.replace(kind, items.into_iter().map(|one| named(one, kind)).collect());
        Ok(version)
    }

    fn replace(&self, kind: &'static str, objects: BTreeMap<String, Value>) {
        let mut state = self.lock();
        if state.kinds.get(kind) != Some(&objects) {
            state.kinds.insert(kind, objects);
            state.changes += 1;
            self.listed.notify_all();
        }
    }

    /// Applies events until the watch ends.
    fn watch(
        &self,
        connection: &Connection,
        path: &str,
        kind: &'static str,
        version: &str,
    ) -> Result<(), Refusal> {
        let path = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}");
        let mut events = BufReader::new(connection.watch(&path, WATCH_WITHIN)?);
        loop {
            let mut line = Vec::new();
            let broken = |text: String| Refusal { status: 0, text: format!("the watch: {text}") };
            let read = (&mut events).take(MAX_EVENT_BYTES).read_until(b'\n', &mut line);
            // Also where this side ends it: what follows is a list.
            if read.map_err(|error| broken(error.to_string()))? == 0 {
                return Ok(());
            }
            let event: Value = serde_json::from_slice(&line).map_err(|error| broken(error.to_string()))?;
            let object = event["object"].clone();
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => {
                    let (name, object) = named(object, kind);
                    let mut state = self.lock();
                    state.kinds.entry(kind).or_default().insert(name, object);
                    state.changes += 1;
                }
                Some("DELETED") => {
                    let (name, _) = named(object, kind);
                    let mut state = self.lock();
                    state.kinds.entry(kind).or_default().remove(&name);
                    state.changes += 1;
                }
                Some("BOOKMARK") => {}
                _ => {
                    let status = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
                    let text = object["message"].as_str().unwrap_or("no event").to_owned();
                    return Err(Refusal { status: status.unwrap_or(0), text });
                }
            }
        }
    }
}

/// Returns what the worker reads of an object, under its name. Kinds are not in the items of a list.
fn named(object: Value, kind: &str) -> (String, Value) {
    let metadata = &object["metadata"];
    let text = |member: &str| metadata[member].as_str().unwrap_or_default();
    let name = format!("{}/{}", text("namespace"), text("name"));
    let kept = serde_json::json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": object["spec"],
    });
    (name, kept)
}

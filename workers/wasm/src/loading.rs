//! Reads the folders, or the policies of a cluster, once and again after each change.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use admission_gateway_worker::Policy;

use crate::cluster::Cluster;
use crate::documents::{self, files};
use crate::engine::{Bounds, Clocked};
use crate::following::Following;
use crate::host::Reads;
use crate::modules::Modules;
use crate::objects::Objects;
use crate::policy::Ready;

/// The endings of files whose change is looked for.
const ENDINGS: [&str; 5] = ["yaml", "yml", "json", "wasm", "wat"];

/// The folders, and what takes the place of some.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Of documents and modules.
    pub policies: Vec<PathBuf>,
    /// Of modules alone.
    pub modules: Vec<PathBuf>,
    /// Where policies read, instead of the folders' objects.
    pub cluster: Option<Arc<Cluster>>,
    /// Where the policies are, instead of the folders.
    pub following: Option<Arc<Following>>,
}

/// Makes policies of what the folders have.
#[derive(Debug)]
pub struct Loader {
    sources: Sources,
    bounds: Bounds,
    modules: Modules,
    /// The folders when the last load began.
    begun: Seen,
}

/// Each file with its length and when it changed, and how often the cluster's policies changed.
type Seen = (Vec<(PathBuf, u64, Option<SystemTime>)>, u64);

impl Loader {
    /// Makes the engine. Fails where the machine has no executable memory to give.
    pub fn new(sources: Sources, bounds: Bounds) -> Result<Self, String> {
        let folders = sources.policies.iter().chain(&sources.modules).cloned().collect();
        Ok(Self { modules: Modules::new(Clocked::new()?, folders), sources, bounds, begun: Seen::default() })
    }

    /// Returns the policies for the SDK, or every problem of any of them.
    pub fn load(&mut self) -> Result<Vec<Policy>, Vec<String>> {
        Ok(self.ready()?.into_iter().map(Ready::into_policy).collect())
    }

    /// Returns the policies, or every problem of any of them.
    pub fn ready(&mut self) -> Result<Vec<Ready>, Vec<String>> {
        self.begun = self.seen(Vec::new());
        self.modules.begin();
        let (found, mut problems) = match &self.sources.following {
            Some(following) => documents::of_cluster(following.documents()),
            None => (documents::read(&self.sources.policies)?, Vec::new()),
        };
        let reads = Arc::new(match &self.sources.cluster {
            Some(cluster) => Reads::Cluster(Arc::clone(cluster)),
            None => Reads::Folders(Objects::new(found.objects)),
        });
        let mut policies = Vec::new();
        for document in found.policies {
            let place = match &self.sources.following {
                Some(_) => document.place.clone(),
                None => format!("{}: {}", document.place, document.name),
            };
            let module = self.modules.get(&document).map_err(|problem| format!("spec.module: {problem}"));
            let ready = module.and_then(|module| Ready::new(document, module, &reads, &self.bounds));
            match ready {
                Ok(ready) => policies.push(ready),
                Err(problem) => problems.push(format!("{place}: {problem}")),
            }
        }
        if self.sources.following.is_some() {
            // What one author wrote costs no other's policies.
            for problem in problems.drain(..) {
                eprintln!("worker: left out, so that its calls fail: {problem}");
            }
        } else if policies.is_empty() && problems.is_empty() {
            let folders: Vec<_> = self.sources.policies.iter().map(|one| one.display().to_string()).collect();
            problems.push(format!(
                "{}: there is no ClusterAdmissionPolicy or AdmissionPolicy",
                folders.join(", ")
            ));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        self.modules.end();
        Ok(policies)
    }

    /// The folders as they are, with these files elsewhere.
    fn seen(&self, others: Vec<PathBuf>) -> Seen {
        let folders: Vec<_> = self.sources.policies.iter().chain(&self.sources.modules).cloned().collect();
        let mut all = files(&folders, &ENDINGS).unwrap_or_default();
        all.extend(others);
        all.sort();
        all.dedup();
        let seen = all.into_iter().map(|file| {
            let (size, changed) =
                std::fs::metadata(&file).map_or((0, None), |found| (found.len(), found.modified().ok()));
            (file, size, changed)
        });
        (seen.collect(), self.sources.following.as_ref().map_or(0, |following| following.changes()))
    }

    /// Loads again after each change, for ever. A change is taken once the folders stay as they are for `interval`; what
    /// cannot be loaded is logged, and the last good policies stay.
    pub fn follow(
        mut self,
        interval: Duration,
        mut apply: impl FnMut(Vec<Policy>) -> Result<(), Vec<String>>,
    ) {
        let is_same = self.seen(Vec::new()) == self.begun;
        let mut loaded = if is_same { self.seen(self.modules.watched()) } else { Seen::default() };
        let mut before = loaded.clone();
        loop {
            thread::sleep(interval);
            let now = self.seen(self.modules.watched());
            if now == before && now != loaded {
                loaded = now.clone();
                let applied = self.load().and_then(|policies| {
                    let count = policies.len();
                    apply(policies).map(|()| count)
                });
                match applied {
                    Ok(count) => eprintln!("worker: loaded {count} policies again"),
                    Err(problems) => {
                        for problem in problems {
                            eprintln!("worker: the last good policies stay: {problem}");
                        }
                    }
                }
            }
            before = now;
        }
    }
}

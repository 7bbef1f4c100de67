//! The policies that a server has now, and what replaces them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::evaluation::Policies;
use crate::meter::Meters;
use crate::policy::Policy;
use crate::serving::StartError;

/// Replaces the policies of a [`Server`](crate::Server), before and while they are served.
///
/// ```
/// use admission_gateway_worker::{Policy, Review, Server};
///
/// let server = Server::new();
/// let replacer = server.replacer();
/// replacer.replace([Policy::new("always", "Everything is allowed.", |_: &mut Review| ())]).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Replacer(pub(crate) Arc<Served>);

impl Replacer {
    /// Serves these policies instead of all before. Calls in flight end with the policy that they began with.
    ///
    /// Fails, and changes nothing, if a name is empty or given twice.
    pub fn replace(&self, policies: impl IntoIterator<Item = Policy>) -> Result<(), StartError> {
        let policies: Vec<_> = policies.into_iter().collect();
        match problem_of(&policies) {
            Some(problem) => Err(StartError::new(problem)),
            None => {
                self.0.replace(policies);
                Ok(())
            }
        }
    }
}

/// Says what is wrong with the names of policies, if anything.
pub(crate) fn problem_of(policies: &[Policy]) -> Option<String> {
    let mut names = HashSet::new();
    policies.iter().find_map(|policy| {
        let is_taken = !names.insert(policy.name.as_str());
        let taken = || is_taken.then(|| format!("policy \"{}\" is registered twice", policy.name));
        policy.problem().or_else(taken)
    })
}

/// The policies of a server.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// `None` before it serves.
    now: RwLock<Option<Arc<Policies>>>,
    before: Mutex<Before>,
    busy_threads: Arc<AtomicUsize>,
}

/// What is replaced with.
#[derive(Debug, Default)]
struct Before {
    /// What replaces the registered policies when it begins.
    policies: Option<Vec<Policy>>,
    meters: Option<Meters>,
    is_serving: bool,
}

impl Served {
    /// The policies now.
    ///
    /// # Panics
    ///
    /// Before `begin`.
    pub(crate) fn now(&self) -> Arc<Policies> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(now.as_ref().expect("a server has begun"))
    }

    /// The policies in place of those that were registered, if there are any.
    pub(crate) fn replaced(&self) -> Option<Vec<Policy>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).policies.take()
    }

    pub(crate) fn begin(&self, policies: Vec<Policy>, meters: Option<Meters>) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.is_serving = true;
        before.meters = meters;
        self.set(policies, before.meters.as_ref());
    }

    fn replace(&self, policies: Vec<Policy>) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if before.is_serving {
            self.set(policies, before.meters.as_ref());
        } else {
            before.policies = Some(policies);
        }
    }

    fn set(&self, mut policies: Vec<Policy>, meters: Option<&Meters>) {
        if let Some(meters) = meters {
            policies.iter_mut().for_each(|policy| meters.give(policy));
        }
        let policies = Arc::new(Policies::new(policies, &self.busy_threads));
        let old = self.now.write().unwrap_or_else(PoisonError::into_inner).replace(policies);
        drop(old); // without the lock: policies may hold much
    }

    /// Number of threads that are running a policy.
    pub(crate) fn busy_threads(&self) -> usize {
        self.busy_threads.load(Ordering::Relaxed)
    }
}

//! Counts the calls of a policy, for `metrics.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::answer::Outcome;
use crate::policy::Policy;

/// Upper bounds of the duration histogram in microseconds, the same in the SDKs of all languages.
pub(crate) const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// The counters of one policy.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) error: AtomicU64,
    pub(crate) in_flight: AtomicI64,
    /// Durations up to each bound and above the one before; the last: above all bounds.
    pub(crate) durations: [AtomicU64; BOUNDS_US.len() + 1],
    pub(crate) nanos: AtomicU64,
}

impl Meter {
    /// Counts the outcome of a call.
    pub(crate) fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Allowed => &self.allowed,
            Outcome::Response(response) if response.allowed => &self.allowed,
            Outcome::Response(_) => &self.denied,
            Outcome::Error(_) => &self.error,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// A call in flight, of a policy with a meter. A call that is dropped without an end has no outcome.
pub(crate) struct Metered(Option<(Arc<Policy>, Instant)>);

impl Metered {
    pub(crate) fn begin(policy: &Arc<Policy>, started: Instant) -> Self {
        Self(policy.meter.as_ref().map(|meter| {
            meter.in_flight.fetch_add(1, Relaxed);
            (Arc::clone(policy), started)
        }))
    }

    pub(crate) fn end(self, outcome: &Outcome) {
        let Some((meter, started)) = self.parts() else { return };
        let took = started.elapsed();
        let bucket = BOUNDS_US.iter().position(|bound| took.as_nanos() <= u128::from(*bound) * 1000);
        meter.count(outcome);
        meter.durations[bucket.unwrap_or(BOUNDS_US.len())].fetch_add(1, Relaxed);
        meter.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn parts(&self) -> Option<(&Meter, Instant)> {
        self.0.as_ref().and_then(|(policy, started)| Some((policy.meter.as_ref()?, *started)))
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let Some((meter, _)) = self.parts() {
            meter.in_flight.fetch_sub(1, Relaxed);
        }
    }
}

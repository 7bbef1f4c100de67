//! Counts the calls of policies; `metrics.rs` serves the counts.

use std::fs;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::answer::Outcome;
use crate::policy::Policy;

/// Upper bounds of the duration histogram in seconds, the same in the SDKs of all languages.
const BOUNDS_S: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Clock ticks of a second in /proc, on all machines that Rust's standard library supports.
const TICKS: f64 = 100.0;

type Labels<const N: usize> = [(&'static str, String); N];

/// The counters of one policy.
#[derive(Debug)]
pub(crate) struct Meter {
    allowed: Counter,
    denied: Counter,
    error: Counter,
    in_flight: Gauge,
    duration: Histogram,
}

/// The metrics of policies, by their names.
#[derive(Debug)]
pub(crate) struct Meters {
    reviews: Family<Labels<2>, Counter>,
    in_flight: Family<Labels<1>, Gauge>,
    duration: Family<Labels<1>, Histogram, fn() -> Histogram>,
}

/// Returns the metrics of the worker, and what counts in them. The library ends each help text with a period.
pub(crate) fn measure() -> (Registry, Meters) {
    let mut registry = Registry::default();
    let build =
        [("sdk", "rust"), ("version", env!("CARGO_PKG_VERSION")), ("runtime", env!("WORKER_RUSTC_VERSION"))];
    registry.register("admission_gateway_worker_build", "The SDK of the worker", Info::new(build));

    let reviews = Family::<Labels<2>, Counter>::default();
    let help = "Reviews by outcome; error: the policy failed or exceeded its deadline";
    registry.register("admission_gateway_worker_policy_reviews", help, reviews.clone());

    let in_flight = Family::<Labels<1>, Gauge>::default();
    let help = "Reviews whose policy has begun and that have no answer yet";
    registry.register("admission_gateway_worker_policy_in_flight", help, in_flight.clone());

    let made: fn() -> Histogram = || Histogram::new(BOUNDS_S);
    let duration = Family::<Labels<1>, _, _>::new_with_constructor(made);
    let help = "Time from the begin of a policy to its answer";
    registry.register("admission_gateway_worker_policy_duration_seconds", help, duration.clone());

    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    registry.register_collector(Box::new(Process { started: started.as_secs_f64() }));

    (registry, Meters { reviews, in_flight, duration })
}

impl Meters {
    /// Gives a policy its meter: the one of an earlier policy of its name, if there was one.
    pub(crate) fn give(&self, policy: &mut Policy) {
        let name = || ("policy", policy.name.clone());
        let counter =
            |outcome: &str| self.reviews.get_or_create_owned(&[name(), ("outcome", outcome.to_owned())]);
        policy.meter = Some(Meter {
            allowed: counter("allowed"),
            denied: counter("denied"),
            error: counter("error"),
            in_flight: self.in_flight.get_or_create_owned(&[name()]),
            duration: self.duration.get_or_create_owned(&[name()]),
        });
    }
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
        counter.inc();
    }
}

/// A call in flight, of a policy with a meter. A call that is dropped without an end has no outcome.
pub(crate) struct Metered(Option<(Arc<Policy>, Instant)>);

impl Metered {
    pub(crate) fn begin(policy: &Arc<Policy>, started: Instant) -> Self {
        Self(policy.meter.as_ref().map(|meter| {
            meter.in_flight.inc();
            (Arc::clone(policy), started)
        }))
    }

    pub(crate) fn end(self, outcome: &Outcome) {
        let Some((meter, started)) = self.parts() else { return };
        meter.count(outcome);
        meter.duration.observe(started.elapsed().as_secs_f64());
    }

    fn parts(&self) -> Option<(&Meter, Instant)> {
        self.0.as_ref().and_then(|(policy, started)| Some((policy.meter.as_ref()?, *started)))
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let Some((meter, _)) = self.parts() {
            meter.in_flight.dec();
        }
    }
}

/// The process; what its system tells. The library has nothing for it.
#[derive(Debug)]
struct Process {
    /// Seconds since 1970.
    started: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        if let Some(seconds) = cpu_seconds() {
            let (name, help) = ("process_cpu_seconds", "CPU time of the process in seconds.");
            let counter = ConstCounter::new(seconds);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let files = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory of the process in bytes.", resident_bytes()),
            ("process_open_fds", "Open file descriptors of the process.", files),
            ("process_start_time_seconds", "Start of the process in seconds since 1970.", Some(self.started)),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
            }
        }
        Ok(())
    }
}

/// Returns the CPU time; `None` where there is no /proc.
///
/// Source: proc_pid_stat(5), utime and stime.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut ticks = after_name.split_whitespace().skip(11).take(2);
    let (user, system): (f64, f64) = (ticks.next()?.parse().ok()?, ticks.next()?.parse().ok()?);
    Some((user + system) / TICKS)
}

/// Returns the resident memory; `None` where there is no /proc.
fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let (_, after) = status.split_once("\nVmRSS:")?;
    let kibibytes: f64 = after.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

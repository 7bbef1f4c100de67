//! The metrics of a worker over HTTP, in Prometheus' text format.
//!
//! The format is written here: the usual library would add a dozen crates to each worker for these families.

use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::{Method, Request, Response};

use crate::evaluation::Policies;
use crate::listen::{Address, Listener, bind};
use crate::meter::{BOUNDS_US, Meter};
use crate::serving::{ACCEPT_AGAIN, StartError};

pub(crate) const PATH: &str = "/metrics";

/// Bounds of a request and of their number: the port has no authentication.
const REQUEST: Duration = Duration::from_secs(5);
const MAX_CONNECTIONS: usize = 16;
const MAX_HEADER_BYTES: usize = 8192;

/// Clock ticks of a second in /proc, on all machines that Rust's standard library supports.
const TICKS: f64 = 100.0;

/// Parses the address of `--metrics-listen`.
pub(crate) fn parse(text: &str) -> Result<Address, String> {
    match Address::parse(text)? {
        Address::Unix(_) => Err("HOST:PORT is expected".to_owned()),
        address => Ok(address),
    }
}

/// Serves the metrics until `end`; returns the address, with its port.
pub(crate) async fn serve(
    listen: &str,
    policies: Arc<Policies>,
    end: CancellationToken,
) -> Result<String, StartError> {
    let failed = |text: &dyn Display| StartError::new(format!("--metrics-listen: {text}"));
    let address = parse(listen).map_err(|text| failed(&text))?;
    let (listener, address, _) = bind(&address).await.map_err(|error| failed(&error))?;
    let Listener::Tcp(listener) = listener else { unreachable!("the address is HOST:PORT") };
    tokio::spawn(async move { end.run_until_cancelled(accept(listener, policies)).await });
    Ok(address.to_string())
}

async fn accept(listener: TcpListener, policies: Arc<Policies>) {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer_one(stream, Arc::clone(&policies), started);
                tokio::spawn(async move {
                    let _permit = permit;
                    let _ = timeout(REQUEST, answer).await;
                });
            }
            Err(_) => sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn answer_one(stream: TcpStream, policies: Arc<Policies>, started: Duration) {
    let service = service_fn(|request| {
        let answer = answer(&request, &policies, started);
        async { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).timer(TokioTimer::new()).max_buf_size(MAX_HEADER_BYTES);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(request: &Request<Incoming>, policies: &Policies, started: Duration) -> Response<String> {
    let (status, text) = if request.uri().path() != PATH {
        (404, format!("the metrics are at {PATH}\n"))
    } else if ![Method::GET, Method::HEAD].contains(request.method()) {
        (405, "only GET and HEAD are served\n".to_owned())
    } else {
        (200, exposition(policies, started))
    };
    // Version 0.0.4 of the format.
    let kind =
        if status == 200 { "text/plain; version=0.0.4; charset=utf-8" } else { "text/plain; charset=utf-8" };
    let response = Response::builder().status(status).header("content-type", kind).body(text);
    response.expect("a valid response")
}

/// Writes families of metrics.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.family(name, kind, help);
            let _ = writeln!(self.0, "{name} {value}");
        }
    }
}

/// Returns the metrics; `started` is the time since 1970 at which the worker started.
fn exposition(policies: &Policies, started: Duration) -> String {
    let mut text = Text::default();
    let metered = || {
        policies
            .in_order()
            .iter()
            .filter_map(|policy| Some((format!("policy={}", label(&policy.name)), policy.meter.as_ref()?)))
    };

    let build = "admission_gateway_worker_build_info";
    text.family(build, "gauge", "The SDK of the worker.");
    let versions = (label(env!("CARGO_PKG_VERSION")), label(env!("WORKER_RUSTC_VERSION")));
    text.sample(build, &format!("sdk=\"rust\",version={},runtime={}", versions.0, versions.1), 1);

    let reviews = "admission_gateway_worker_policy_reviews_total";
    text.family(reviews, "counter", "Reviews by outcome; error: the policy failed or exceeded its deadline.");
    for (policy, meter) in metered() {
        let Meter { allowed, denied, error, .. } = meter;
        for (outcome, count) in [("allowed", allowed), ("denied", denied), ("error", error)] {
            text.sample(reviews, &format!("{policy},outcome=\"{outcome}\""), count.load(Relaxed));
        }
    }

    let in_flight = "admission_gateway_worker_policy_in_flight";
    text.family(in_flight, "gauge", "Reviews whose policy has begun and that have no answer yet.");
    for (policy, meter) in metered() {
        text.sample(in_flight, &policy, meter.in_flight.load(Relaxed));
    }

    let duration = "admission_gateway_worker_policy_duration_seconds";
    text.family(duration, "histogram", "Time from the begin of a policy to its answer.");
    for (policy, meter) in metered() {
        let mut total = 0;
        for (index, count) in meter.durations.iter().enumerate() {
            total += count.load(Relaxed);
            let bound = BOUNDS_US.get(index).map(|&bound| Duration::from_micros(bound).as_secs_f64());
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.to_string());
            text.sample(&format!("{duration}_bucket"), &format!("{policy},le=\"{bound}\""), total);
        }
        let seconds = Duration::from_nanos(meter.nanos.load(Relaxed)).as_secs_f64();
        text.sample(&format!("{duration}_sum"), &policy, seconds);
        text.sample(&format!("{duration}_count"), &policy, total);
    }

    let files = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    let help = "CPU time of the process in seconds.";
    text.single("process_cpu_seconds_total", "counter", help, cpu_seconds());
    let help = "Resident memory of the process in bytes.";
    text.single("process_resident_memory_bytes", "gauge", help, resident_bytes());
    text.single("process_open_fds", "gauge", "Open file descriptors of the process.", files);
    let help = "Start of the process in seconds since 1970.";
    text.single("process_start_time_seconds", "gauge", help, Some(started.as_secs_f64()));
    text.0
}

/// Returns a value for a label, escaped as the format requires.
fn label(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\""))
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

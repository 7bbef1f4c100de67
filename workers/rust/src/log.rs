//! The worker's log: lines on stderr, with a limited rate.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of logged failures for each policy: logging all failures would use too much CPU.
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// Writes one line.
pub(crate) fn say(text: &str) {
    eprintln!("worker: {text}");
}

/// When a policy's failures were last shown, and how many were not since then.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<(Option<Instant>, u64)>);

impl Failures {
    /// Shows a failure, unless one was shown within the last second.
    pub(crate) fn show(&self, policy: &str, details: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, hidden) = *state;
        if shown.is_some_and(|at| at.elapsed() < FAILURE_INTERVAL) {
            state.1 += 1;
            return;
        }
        *state = (Some(Instant::now()), 0);
        drop(state);
        let more =
            if hidden > 0 { format!(" ({hidden} failures since the last one shown)") } else { String::new() };
        say(&format!("policy \"{policy}\" failed{more}: {details}"));
    }
}

thread_local! {
    static IN_POLICY: Cell<bool> = const { Cell::new(false) };
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Marks that what this thread runs is a policy, so that its panics are logged as the policy's failures.
pub(crate) struct InPolicy(bool);

impl InPolicy {
    pub(crate) fn enter() -> Self {
        Self(IN_POLICY.replace(true))
    }
}

impl Drop for InPolicy {
    fn drop(&mut self) {
        IN_POLICY.set(self.0);
    }
}

/// Where the last panic of a policy in this thread happened, if [`note_panics`] was called.
pub(crate) fn take_panic_place() -> Option<String> {
    PANICKED_AT.take()
}

/// Has panics of policies noted rather than printed one by one. For programs only: it is for all threads.
pub(crate) fn note_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IN_POLICY.get() {
            return previous(panic);
        }
        let backtrace = std::backtrace::Backtrace::capture();
        let mut place = panic.location().map(ToString::to_string).unwrap_or_default();
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            place = format!("{place}\n{backtrace}");
        }
        PANICKED_AT.set(Some(place));
    }));
}

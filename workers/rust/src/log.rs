//! The worker's log: lines on stderr, with a limited rate.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::review::Subject;

/// Interval of logged failures for each policy: logging all failures would use too much CPU.
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// Begins each line of a stack trace; no record begins with it.
const CONTINUED: &str = "    | ";

/// Limit of each value in a record, and of a line of a stack trace.
const MAX_CHARACTERS: usize = 1000;

const MAX_STACK_LINES: usize = 100;

/// Writes one line.
pub(crate) fn say(text: &str) {
    eprintln!("worker: {text}");
}

/// Writes a record of that level, with the time. Values in the text are to be [`quoted`].
pub(crate) fn log(level: &str, text: &str) {
    eprintln!("{}", record(level, text));
}

fn record(level: &str, text: &str) -> String {
    let mut now = prost_types::Timestamp::from(SystemTime::now());
    now.nanos -= now.nanos % 1_000_000;
    format!("{now} {level} worker: {text}")
}

/// Returns a text in quotes, cut, and with its control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", start(text))
}

fn start(text: &str) -> &str {
    text.char_indices().nth(MAX_CHARACTERS).map_or(text, |(end, _)| &text[..end])
}

/// When a policy's failures were last shown, and how many were not since then.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<(Option<Instant>, u64)>);

impl Failures {
    /// Logs a failed review as one line, with the stack trace in marked lines after it, unless a failure of the
    /// policy was logged within the last second.
    pub(crate) fn show(&self, policy: &str, subject: Option<&Subject>, error: &str, stack: Option<&str>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, dropped) = *state;
        if shown.is_some_and(|at| at.elapsed() < FAILURE_INTERVAL) {
            state.1 += 1;
            return;
        }
        *state = (Some(Instant::now()), 0);
        drop(state);
        log("ERROR", &failure(policy, subject, error, dropped, stack));
    }
}

fn failure(
    policy: &str,
    subject: Option<&Subject>,
    error: &str,
    dropped: u64,
    stack: Option<&str>,
) -> String {
    let mut text = format!("policy failed: policy={}", quoted(policy));
    if let Some(Subject { payload, traceparent }) = subject {
        let uid = payload.member("uid").ok().and_then(|uid| uid.as_str()).unwrap_or_default();
        if !uid.is_empty() {
            text += &format!(" uid={}", quoted(uid));
        }
        if let Some(traceparent) = traceparent {
            text += &format!(" trace_id={}", quoted(traceparent.trace_id()));
        }
    }
    text += &format!(" error={}", quoted(error));
    if dropped > 0 {
        text += &format!(" dropped={dropped}");
    }
    for line in stack.into_iter().flat_map(str::lines).take(MAX_STACK_LINES) {
        text += "\n";
        text += CONTINUED;
        let keep = |c: char| "\"'\\".contains(c);
        text.extend(
            start(line).chars().map(|c| if keep(c) { c.to_string() } else { c.escape_debug().to_string() }),
        );
    }
    text
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

/// Place and backtrace of the last panic of a policy in this thread, if [`note_panics`] was called.
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
        let mut place = panic.location().map(|place| format!("at {place}")).unwrap_or_default();
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            place = format!("{place}\n{backtrace}");
        }
        PANICKED_AT.set(Some(place));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::Review;
    use serde_json::json;

    const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_failure_is_one_line_and_no_text_begins_another_record() {
        let review = Review::from_json(&json!({"uid": "u\n1", "object": {"data": "s3cret"}}));
        let review = review.with_traceparent(format!("00-{TRACE_ID}-b7ad6b7169203331-01"));
        let error = "bang\n2026-01-01T00:00:00.000Z ERROR forged \u{1b}[31m\u{2028}\"quoted\"";
        let stack = "at src/a.rs:1:1\n  0: \u{1b}[31m\tf\r\n";
        let text = failure("tested", Some(&review.subject()), error, 4, Some(stack));
        let escaped = r#"bang\n2026-01-01T00:00:00.000Z ERROR forged \u{1b}[31m\u{2028}\"quoted\""#;
        let first = format!(
            r#"policy failed: policy="tested" uid="u\n1" trace_id="{TRACE_ID}" error="{escaped}" dropped=4"#
        );
        let lines: Vec<_> = text.split('\n').collect();
        assert_eq!(lines, [first.as_str(), "    | at src/a.rs:1:1", r"    |   0: \u{1b}[31m\tf"]);
    }

    #[test]
    fn a_record_is_bounded_and_has_its_time() {
        let text = failure("p", None, &"\u{0}é".repeat(100_000), 0, Some(&"x\n".repeat(100_000)));
        assert!(text.len() < 20_000);
        let record = record("ERROR", "text");
        let (time, rest) = record.split_once(' ').expect("a space");
        assert!(time.starts_with("20") && time.ends_with('Z') && time.len() <= 24, "{time}");
        assert_eq!(rest, "ERROR worker: text");
    }
}

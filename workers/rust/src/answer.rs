//! Converts the result of a policy into the message for the gateway: a `ReviewResponse` or an `Error`.
//!
//! Laws:
//! 1. A denial is always sent as a denial: also with an invalid code, or as the source of another error.
//! 2. Any result other than `Ok` or a denial is an Error, never an allowed response.
//! 3. The worker sends no backtrace, and at most `MAX_ERROR_BYTES` of error text.

use std::any::Any;

use prost::Message;
use prost::bytes::Bytes;
use tonic::Code;

use crate::denied::{Cause, Denied, Kind, PolicyError, Result};
use crate::log::take_panic_place;
use crate::pb;
use crate::policy::Policy;
use crate::review::{Change, Review, Said, Subject};

/// Limit in both directions, as in the gateway: a review has up to 7 MiB, and gRPC's default is 4 MiB.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Leaves room for the fields of the verdict and the batch.
const MAX_RESPONSE_BYTES: usize = MAX_MESSAGE_BYTES - 128;

/// Limit of an Error's text. In a unary answer it is percent-encoded, up to three times as long, in the
/// trailers, which gRPC limits to 8 KiB.
const MAX_ERROR_BYTES: usize = 2000;

pub(crate) enum Outcome {
    /// The most frequent answer: allowed, without other fields.
    Allowed,
    Response(Box<pb::ReviewResponse>),
    Error(pb::Error),
}

/// The outcome of a call, and what it changes in the object.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) change: Option<Change>,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, change: None }
    }
}

impl Outcome {
    /// The patch of a call that changes the object.
    pub(crate) fn patch(&self) -> Option<Bytes> {
        match self {
            Self::Response(response) if response.allowed && !response.patch.is_empty() => {
                Some(response.patch.clone())
            }
            _ => None,
        }
    }

    /// How long it is as a part of a message.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Allowed => 2,
            Self::Response(response) => response.encoded_len(),
            Self::Error(error) => error.encoded_len(),
        }
    }
}

/// Returns the Error of that code, its text cut to `MAX_ERROR_BYTES`.
pub(crate) fn error(code: Code, text: impl Into<String>) -> Outcome {
    let mut message = text.into();
    if message.len() > MAX_ERROR_BYTES {
        let room = MAX_ERROR_BYTES - "...".len();
        let end = (0..=room).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    Outcome::Error(pb::Error { code: code as i32, message })
}

/// Returns the Error of a call whose deadline has passed.
pub(crate) fn too_late() -> Outcome {
    error(Code::DeadlineExceeded, "the deadline passed before the policy answered")
}

/// Returns how a policy that returned has ended.
pub(crate) fn ended(policy: &Policy, mut review: Review, result: Result) -> Ended {
    match result.and_then(|()| review.patch_text()) {
        Ok(patch) => {
            let said = review.said();
            let parameters_applied = review.has_parameters();
            if patch.is_empty() && said.is_empty() && !parameters_applied {
                return Outcome::Allowed.into();
            }
            let is_changed = !patch.is_empty();
            let outcome = limited(pb::ReviewResponse {
                allowed: true,
                status: None,
                patch: patch.into(),
                audit_annotations: said.annotations,
                warnings: said.warnings,
                parameters_applied,
            });
            let is_sent = matches!(outcome, Outcome::Response(_));
            Ended { outcome, change: if is_changed && is_sent { review.into_change() } else { None } }
        }
        Err(PolicyError(Kind::Denied(denied))) => {
            let has_parameters = review.has_parameters();
            limited(denial(*denied, review.said(), has_parameters)).into()
        }
        Err(PolicyError(Kind::Malformed(text))) => error(Code::InvalidArgument, text).into(),
        Err(PolicyError(Kind::Failed(problem))) => {
            let text = problem.to_string();
            let text = if text.is_empty() { format!("{problem:?}") } else { text };
            let sources = std::iter::successors(problem.source(), |outer| outer.source());
            let details = sources.fold(text.clone(), |told, source| format!("{told}: {source}"));
            policy.failures.show(&policy.name, Some(&review.subject()), &details, None);
            error(Code::Internal, text).into()
        }
    }
}

/// Returns the outcome of a policy that panicked.
pub(crate) fn panicked(policy: &Policy, subject: Option<&Subject>, panic: &(dyn Any + Send)) -> Outcome {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "the policy panicked",
    };
    policy.failures.show(&policy.name, subject, &format!("panic: {text}"), take_panic_place().as_deref());
    error(Code::Internal, text)
}

fn denial(denied: Denied, said: Said, parameters_applied: bool) -> pb::ReviewResponse {
    let code = if (400..=599).contains(&denied.code) { denied.code } else { 400 };
    let cause = |Cause { message, field, reason }| pb::StatusCause { reason, message, field };
    let causes = denied.causes.into_iter().map(cause).collect();
    pb::ReviewResponse {
        allowed: false,
        status: Some(pb::Status {
            code,
            reason: denied.reason,
            message: denied.message,
            causes,
            retry_after_seconds: denied.retry_after_seconds.max(0),
            name: denied.name,
            group: denied.group,
            kind: denied.kind,
            uid: denied.uid,
        }),
        patch: Bytes::new(),
        audit_annotations: said.annotations,
        warnings: said.warnings,
        parameters_applied,
    }
}

/// Returns the response; if it is too large, an Error, or a denial with a shortened status.
fn limited(mut response: pb::ReviewResponse) -> Outcome {
    let size = response.encoded_len();
    if size <= MAX_RESPONSE_BYTES {
        return Outcome::Response(Box::new(response));
    }
    if let Some(status) = response.status.take() {
        let head = |text: String, length| text.chars().take(length).collect();
        let status = pb::Status {
            code: status.code,
            reason: head(status.reason, 64),
            message: head(status.message, 4096),
            retry_after_seconds: status.retry_after_seconds,
            ..Default::default()
        };
        return Outcome::Response(Box::new(pb::ReviewResponse {
            status: Some(status),
            parameters_applied: response.parameters_applied,
            ..Default::default()
        }));
    }
    let patch = response.patch.len();
    error(
        Code::ResourceExhausted,
        format!("the answer has {size} bytes ({patch} of them patch), more than {MAX_RESPONSE_BYTES}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(judge: impl Fn(&mut Review) -> Result + Send + Sync + 'static) -> Outcome {
        let policy = Policy::new("p", "", judge).mutating();
        let mut review = Review::from_json(&json!({"object": {"a": 1}}));
        let crate::policy::Function::Plain(function) = &policy.function else { unreachable!() };
        let result = function(&mut review);
        ended(&policy, review, result).outcome
    }

    fn status_of(outcome: Outcome) -> pb::Status {
        match outcome {
            Outcome::Response(response) if !response.allowed => response.status.expect("a status"),
            _ => panic!("no denial"),
        }
    }

    fn error_of(outcome: Outcome) -> (i32, String) {
        match outcome {
            Outcome::Error(error) => (error.code, error.message),
            _ => panic!("no error"),
        }
    }

    #[test]
    fn a_code_that_is_no_denials_is_sent_as_400() {
        for (given, sent) in [(200, 400), (399, 400), (400, 400), (599, 599), (600, 400), (-1, 400)] {
            let status = status_of(outcome(move |_| Err(Denied::new("no").code(given).into())));
            assert_eq!(status.code, sent);
        }
    }

    #[test]
    fn a_denial_says_what_it_is_about_and_when_to_try_again() {
        let status = status_of(outcome(|_| {
            let denied = Denied::new("no").retry_after_seconds(30).name("web");
            Err(denied.group("apps").kind("Deployment").uid("u-2").into())
        }));
        assert_eq!((status.code, status.retry_after_seconds), (403, 30));
        let about = [status.name, status.group, status.kind, status.uid];
        assert_eq!(about, ["web", "apps", "Deployment", "u-2"]);
        let status = status_of(outcome(|_| Err(Denied::new("no").retry_after_seconds(-1).into())));
        assert_eq!(status.retry_after_seconds, 0);
        let long = "x".repeat(MAX_RESPONSE_BYTES);
        let status =
            status_of(outcome(move |_| Err(Denied::new(long.clone()).retry_after_seconds(30).into())));
        assert_eq!((status.message.len(), status.retry_after_seconds), (4096, 30));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let (code, text) = error_of(outcome(|_| Err(PolicyError::failed("é".repeat(1001)))));
        assert_eq!(code, 13);
        assert_eq!(text, format!("{}...", "é".repeat(998)));
        let (_, text) = error_of(outcome(|_| Err(PolicyError::failed("x".repeat(2000)))));
        assert_eq!(text, "x".repeat(2000));
    }

    #[test]
    fn an_answer_too_large_is_an_error_and_a_denial_shrinks() {
        let (code, text) = error_of(outcome(|review| {
            review.object_mut()?["a"] = "x".repeat(MAX_MESSAGE_BYTES).into();
            Ok(())
        }));
        assert_eq!(code, 8);
        let patch = MAX_MESSAGE_BYTES + "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":\"\"}]".len();
        let size = patch + 7;
        assert_eq!(text, format!("the answer has {size} bytes ({patch} of them patch), more than 8388480"));
        let status = status_of(outcome(|review| {
            review.warn("x".repeat(MAX_MESSAGE_BYTES));
            Err(Denied::new("n".repeat(5000)).field("a").into())
        }));
        assert_eq!((status.message.len(), status.causes.len()), (4096, 0));
    }

    #[test]
    fn warnings_go_with_a_denial_and_with_an_allow() {
        for denies in [false, true] {
            let found = outcome(move |review| {
                review.warn("careful");
                review.annotate("k", "v");
                if denies { Err(Denied::new("no").into()) } else { Ok(()) }
            });
            let Outcome::Response(response) = found else { panic!("no response") };
            assert_eq!(response.warnings, ["careful"]);
            assert_eq!(response.audit_annotations["k"], "v");
            assert_eq!(response.allowed, !denies);
        }
    }
}

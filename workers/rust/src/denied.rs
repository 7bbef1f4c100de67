//! Denials, and errors of policies.

use std::error::Error;
use std::fmt;

/// CauseType of Kubernetes for a well-formed value that a policy does not permit.
const FORBIDDEN: &str = "FieldValueForbidden";

/// What a policy returns: `Ok(())` allows, a [`Denied`] denies, any other error is a failure of the webhook.
///
/// A function that does nothing but deny may as well return `Result<(), Denied>`, and one that always
/// allows nothing at all.
pub type Result<T = (), E = PolicyError> = std::result::Result<T, E>;

/// A denial; the user sees its message.
///
/// ```
/// use admission_gateway_worker::{Cause, Denied};
///
/// let short = Denied::new("spec.hostPID: remove it").field("spec.hostPID");
/// let long = Denied::new("quota is used up")
///     .code(429)
///     .reason("TooManyRequests")
///     .retry_after_seconds(30)
///     .cause(Cause::new("8 of 8 CPUs are taken").field("spec.containers[0].resources"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub(crate) message: String,
    pub(crate) code: i32,
    pub(crate) reason: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after_seconds: i32,
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) uid: String,
}

impl Denied {
    /// Denies with a message: the field, what is wrong with it, and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 403,
            reason: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
        }
    }

    /// The HTTP status, 400 to 599; any other value is sent as 400. Default 403.
    #[must_use]
    pub fn code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// A machine-readable reason, such as `Forbidden`; by default chosen by the gateway.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// The path of the offending field: shorthand for a cause with the message of the denial.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Self {
        self.causes.insert(0, Cause::new(self.message.clone()).field(path));
        self
    }

    /// One more cause; they are shown in this order.
    #[must_use]
    pub fn cause(mut self, cause: Cause) -> Self {
        self.causes.push(cause);
        self
    }

    /// Any number of further causes.
    #[must_use]
    pub fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        self.causes.extend(causes);
        self
    }

    /// After how many seconds the client may try again, which it reads in the header `Retry-After`; anything
    /// below 1 is left out.
    #[must_use]
    pub fn retry_after_seconds(mut self, seconds: i32) -> Self {
        self.retry_after_seconds = seconds;
        self
    }

    /// The name of the denial's object.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The API group of the denial's object.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// The kind of the denial's object. With the reason `Invalid` kubectl prints
    /// `The KIND "NAME" is invalid` instead of the message.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The uid of the denial's object.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = uid.into();
        self
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Denied {}

/// The problem of one field: an entry of `status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub(crate) message: String,
    pub(crate) field: String,
    pub(crate) reason: String,
}

impl Cause {
    /// A cause that concerns the whole object, with the reason `FieldValueForbidden`.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), field: String::new(), reason: FORBIDDEN.to_owned() }
    }

    /// The path of the field, such as `spec.containers[0].image`.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Self {
        self.field = path.into();
        self
    }

    /// One of Kubernetes' CauseTypes, such as `FieldValueRequired`.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The path of the field; empty for the whole object.
    pub fn path(&self) -> &str {
        &self.field
    }
}

/// Why a policy did not allow: a [`Denied`], or what kept it from telling.
///
/// Any error becomes one with `?`. A denial stays a denial, also as the source of another error. It is no
/// `std::error::Error` itself, for the same reason as `Box<dyn Error>` is none.
pub struct PolicyError(pub(crate) Kind);

pub(crate) enum Kind {
    Denied(Box<Denied>),
    /// The gateway sent something else than the contract says.
    Malformed(String),
    Failed(Box<dyn Error + Send + Sync>),
}

impl PolicyError {
    /// A failure that is told with a sentence.
    pub fn failed(text: impl Into<String>) -> Self {
        Self(Kind::Failed(text.into().into()))
    }

    /// A boxed error: `.map_err(PolicyError::boxed)?`.
    pub fn boxed(error: Box<dyn Error + Send + Sync>) -> Self {
        if let Some(malformed) = error.downcast_ref::<Malformed>() {
            return Self(Kind::Malformed(malformed.0.clone()));
        }
        match denial_in(&*error) {
            Some(denied) => Self(Kind::Denied(Box::new(denied))),
            None => Self(Kind::Failed(error)),
        }
    }

    /// The denial, if it is one.
    pub fn denied(&self) -> Option<&Denied> {
        match &self.0 {
            Kind::Denied(denied) => Some(denied),
            _ => None,
        }
    }
}

fn denial_in(error: &(dyn Error + 'static)) -> Option<Denied> {
    let mut found = Some(error);
    while let Some(one) = found {
        if let Some(denied) = one.downcast_ref::<Denied>() {
            return Some(denied.clone());
        }
        found = one.source();
    }
    None
}

impl<E: Error + Send + Sync + 'static> From<E> for PolicyError {
    fn from(error: E) -> Self {
        Self::boxed(Box::new(error))
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Denied(denied) => denied.fmt(f),
            Kind::Malformed(text) => f.write_str(text),
            Kind::Failed(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Denied(denied) => denied.fmt(f),
            Kind::Malformed(text) => f.debug_tuple("Malformed").field(text).finish(),
            Kind::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

/// The gateway has sent malformed JSON. Policies pass it on with `?`.
#[derive(Clone, Debug)]
pub struct Malformed(pub(crate) String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(Denied);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while looking at the second container")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_denial_stays_one_whatever_it_is_wrapped_in() {
        let denied = Denied::new("no").field("spec");
        for error in [
            PolicyError::from(denied.clone()),
            PolicyError::from(Wrapped(denied.clone())),
            PolicyError::boxed(Box::new(Wrapped(denied.clone()))),
        ] {
            assert_eq!(error.denied(), Some(&denied));
        }
    }

    #[test]
    fn any_other_error_is_a_failure_with_its_own_text() {
        let error = PolicyError::from("x".parse::<i32>().unwrap_err());
        assert!(error.denied().is_none());
        assert_eq!(error.to_string(), "invalid digit found in string");
        assert_eq!(PolicyError::failed("no data").to_string(), "no data");
    }

    #[test]
    fn the_field_comes_first_among_the_causes() {
        let denied = Denied::new("a").cause(Cause::new("b")).field("c");
        assert_eq!(denied.causes, [Cause::new("a").field("c"), Cause::new("b")]);
        assert_eq!(denied.causes[0].reason, "FieldValueForbidden");
    }
}

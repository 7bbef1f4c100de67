//! A policy: its function, and run-time observations.
//!
//! Plain and async functions are registered alike. A plain one runs where its request was read, at once;
//! one that keeps blocking there moves to a thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::denied::{PolicyError, Result};
use crate::review::Review;

/// The longest time for which a plain policy may delay other calls; 200 such runs a second would fill a CPU.
const INLINE_LIMIT: Duration = Duration::from_millis(5);

/// Larger reviews never count as slow runs, because parsing takes long in any policy.
const LARGE_REVIEW_BYTES: usize = 64 * 1024;

/// The amount that a slow run adds to the score, from which a fast run subtracts 1. On a busy CPU one run in
/// thousands looks slow, so that two in a row, or one in eight, are caused by the policy.
const SLOW_RUN: u32 = 8;

/// The score at which a policy moves to a thread for good.
const TOO_SLOW: u32 = 2 * SLOW_RUN - 1;

/// A boxed future, for [`Policy::boxed`].
pub type BoxFuture<'a> = Pin<Box<dyn Future<Output = Result> + Send + 'a>>;

/// The future of one call; it gives the review back.
#[doc(hidden)]
pub type Call = Pin<Box<dyn Future<Output = (Review, Result)> + Send>>;

#[doc(hidden)]
pub enum Function {
    Plain(Box<dyn Fn(&mut Review) -> Result + Send + Sync>),
    Async(Box<dyn Fn(Review) -> Call + Send + Sync>),
}

/// A policy with all that can be said about it, for [`Server::add`](crate::Server::register).
///
/// ```
/// use admission_gateway_worker::{Policy, Result, Review, Server};
///
/// fn ask_the_registry(review: &mut Review) -> Result {
///     Ok(())
/// }
///
/// let server = Server::new().register(
///     Policy::new("known-images", "Images are known to the registry.", ask_the_registry)
///         .version("2")
///         .blocking(),
/// );
/// ```
pub struct Policy {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) version: String,
    pub(crate) mutating: bool,
    pub(crate) function: Function,
    pub(crate) failures: crate::log::Failures,
    /// `None` without metrics.
    pub(crate) meter: Option<crate::meter::Meter>,
    /// `None`: it takes no parameters.
    pub(crate) parameters: Option<crate::parameters::Parameters>,
    is_blocking: bool,
    slowness: AtomicU32,
}

impl Policy {
    /// A policy that allows or denies: a plain or an async function of one [`Review`].
    ///
    /// `name` is what `clientConfig.worker.policy` names, `description` one line for ListPolicies.
    pub fn new<M>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: impl Handler<M>,
    ) -> Self {
        Self::of(name.into(), description.into(), function.into_function())
    }

    /// A policy whose future is boxed: for one that is a closure and holds on to what it captured.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use admission_gateway_worker::{Policy, Review};
    /// # struct Data;
    /// # impl Data { async fn refresh(&self) -> Result<(), std::io::Error> { Ok(()) } }
    /// let data = Arc::new(Data);
    /// let policy = Policy::boxed("known-teams", "The team exists.", move |review: &mut Review| {
    ///     let data = Arc::clone(&data);
    ///     Box::pin(async move {
    ///         data.refresh().await?;
    ///         review.warn("the list of teams was out of date");
    ///         Ok(())
    ///     })
    /// });
    /// ```
    pub fn boxed<F>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        F: for<'a> Fn(&'a mut Review) -> BoxFuture<'a> + Send + Sync + 'static,
    {
        let function = std::sync::Arc::new(function);
        let call = move |mut review: Review| -> Call {
            let function = function.clone();
            Box::pin(async move {
                let result = function(&mut review).await;
                (review, result)
            })
        };
        Self::of(name.into(), description.into(), Function::Async(Box::new(call)))
    }

    fn of(name: String, description: String, function: Function) -> Self {
        Self {
            name,
            description,
            version: String::new(),
            mutating: false,
            function,
            failures: crate::log::Failures::default(),
            meter: None,
            parameters: None,
            is_blocking: false,
            slowness: AtomicU32::new(0),
        }
    }

    /// The policy may change the object.
    #[must_use]
    pub fn mutating(mut self) -> Self {
        self.mutating = true;
        self
    }

    /// The version of its code and settings, for logs and caches; opaque.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// The policy takes parameters: `schema` is their JSON Schema, and `prepare` makes
    /// [`Review::parameters`](crate::Review::parameters) from them, once for each value.
    ///
    /// A webhook without parameters means `{}`. An error fails the calls with that value.
    ///
    /// ```
    /// # use admission_gateway_worker::{Denied, Policy, Result, Review, Value, json};
    /// fn limit_replicas(review: &mut Review) -> Result {
    ///     let most = *review.parameters::<u64>();
    ///     match review.object()?["spec"]["replicas"].as_u64() {
    ///         Some(replicas) if replicas > most => Err(Denied::new(format!("at most {most} replicas")).into()),
    ///         _ => Ok(()),
    ///     }
    /// }
    ///
    /// let schema = json!({"type": "object", "properties": {"max": {"type": "integer"}}});
    /// let policy = Policy::new("limit-replicas", "There are few replicas.", limit_replicas)
    ///     .parameters(schema, |given: Value| given["max"].as_u64().ok_or("max is missing"));
    /// ```
    #[must_use]
    pub fn parameters<T, E>(
        mut self,
        schema: serde_json::Value,
        prepare: impl Fn(serde_json::Value) -> std::result::Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        T: Send + Sync + 'static,
        E: fmt::Display,
    {
        self.parameters = Some(crate::parameters::Parameters::new(schema, prepare));
        self
    }

    /// The policy, a plain function, runs in a thread: it waits for a network or a disk, or computes for
    /// milliseconds. Makes no difference to an async one.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    /// Whether it runs in a thread: set at the registration, or after slow runs.
    pub(crate) fn is_blocking(&self) -> bool {
        self.is_blocking || self.slowness.load(Ordering::Relaxed) >= TOO_SLOW
    }

    /// Takes note of how long a plain run took; says whether it was the one too much.
    pub(crate) fn took(&self, elapsed: Duration, size: usize) -> bool {
        // Only ever approximate: threads that race here lose a count, which does no harm.
        let score = self.slowness.load(Ordering::Relaxed);
        if elapsed <= INLINE_LIMIT {
            if score > 0 && score < TOO_SLOW {
                self.slowness.store(score - 1, Ordering::Relaxed);
            }
            return false;
        }
        if size > LARGE_REVIEW_BYTES || score >= TOO_SLOW {
            return false;
        }
        self.slowness.store(score + SLOW_RUN, Ordering::Relaxed);
        score + SLOW_RUN >= TOO_SLOW
    }

    /// What is wrong with it, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_name = !self.name.trim().is_empty() && !self.name.chars().any(char::is_control);
        (!is_name).then(|| format!("the name of a policy is some printable text, found {:?}", self.name))
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Policy");
        shown.field("name", &self.name).field("mutating", &self.mutating);
        shown.field("blocking", &self.is_blocking()).finish_non_exhaustive()
    }
}

/// What a policy's function may return: nothing, or a result with a [`Denied`](crate::Denied), a
/// [`PolicyError`] or any other error.
pub trait Answer {
    /// The result that it stands for.
    fn into_result(self) -> Result;
}

impl Answer for () {
    fn into_result(self) -> Result {
        Ok(())
    }
}

impl<E: Into<PolicyError>> Answer for std::result::Result<(), E> {
    fn into_result(self) -> Result {
        self.map_err(Into::into)
    }
}

/// What can be registered as a policy: a plain or an async function of one `&mut Review`.
///
/// `M` only tells the two apart; the compiler finds it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no policy",
    note = "a policy is `fn(&mut Review) -> Result` or `async fn(&mut Review) -> Result`, and Send + Sync",
    note = "an async closure that captures something goes through `Policy::boxed`"
)]
pub trait Handler<M> {
    #[doc(hidden)]
    fn into_function(self) -> Function;
}

#[doc(hidden)]
pub struct Plain<A>(std::marker::PhantomData<A>);

#[doc(hidden)]
pub struct Async;

impl<F, A> Handler<Plain<A>> for F
where
    F: Fn(&mut Review) -> A + Send + Sync + 'static,
    A: Answer,
{
    fn into_function(self) -> Function {
        Function::Plain(Box::new(move |review| self(review).into_result()))
    }
}

/// An async function for one lifetime of the review; `Fn(&mut Review) -> impl Future` cannot say that the
/// future borrows it.
#[doc(hidden)]
pub trait Borrowing<'a>: Send + Sync {
    type Future: Future<Output: Answer> + Send + 'a;
    fn call(&self, review: &'a mut Review) -> Self::Future;
}

impl<'a, F, T> Borrowing<'a> for F
where
    F: Fn(&'a mut Review) -> T + Send + Sync,
    T: Future<Output: Answer> + Send + 'a,
{
    type Future = T;

    fn call(&self, review: &'a mut Review) -> T {
        self(review)
    }
}

impl<F> Handler<Async> for F
where
    F: for<'a> Borrowing<'a> + 'static,
{
    fn into_function(self) -> Function {
        let function = std::sync::Arc::new(self);
        Function::Async(Box::new(move |mut review| {
            let function = function.clone();
            Box::pin(async move {
                let result = function.call(&mut review).await.into_result();
                (review, result)
            })
        }))
    }
}

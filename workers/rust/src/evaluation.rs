//! Running policies: at once where that is possible, later where it is not.
//!
//! Independent of gRPC: the caller gets the outcome, or a future.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::runtime::RuntimeFlavor;
use tokio::task::JoinHandle;
use tonic::Code;

use crate::answer::{Ended, Outcome, ended, error, panicked, too_late};
use crate::client::{Room, Rpc};
use crate::log::{InPolicy, log, quoted};
use crate::meter::Metered;
use crate::parameters;
use crate::policy::{Call, Function, Policy};
use crate::review::{Review, Subject};

/// A review of this length is parsed, compared and written in milliseconds.
pub(crate) const LARGE_BYTES: usize = 256 * 1024;

/// The policies of a server.
#[derive(Debug)]
pub(crate) struct Policies {
    by_name: HashMap<String, Arc<Policy>>,
    in_order: Vec<Arc<Policy>>,
    busy_threads: Arc<AtomicUsize>,
}

impl Policies {
    /// `busy_threads` counts for all policies that a server has had.
    pub(crate) fn new(policies: Vec<Policy>, busy_threads: &Arc<AtomicUsize>) -> Self {
        let in_order: Vec<_> = policies.into_iter().map(Arc::new).collect();
        let by_name = in_order.iter().map(|policy| (policy.name.clone(), Arc::clone(policy))).collect();
        Self { by_name, in_order, busy_threads: Arc::clone(busy_threads) }
    }

    pub(crate) fn in_order(&self) -> &[Arc<Policy>] {
        &self.in_order
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Policy>> {
        self.by_name.get(name)
    }

    /// Returns the Error of a call for an unknown policy.
    pub(crate) fn unknown(&self, name: &str) -> Outcome {
        let mut served: Vec<_> = self.by_name.keys().map(String::as_str).collect();
        served.sort_unstable();
        let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
        error(Code::NotFound, format!("policy \"{name}\" is not served here; served are: {served}"))
    }

    /// Returns the outcome of a call that has not begun by its deadline.
    pub(crate) fn late(&self, policy: &str) -> Outcome {
        let outcome = too_late();
        if let Some(meter) = self.find(policy).and_then(|policy| policy.meter.as_ref()) {
            meter.count(&outcome);
        }
        outcome
    }

    /// Runs a policy as soon as there is room for it.
    pub(crate) async fn evaluate(
        &self,
        policy: &Arc<Policy>,
        review: Review,
        room: impl Future<Output = Room>,
        rpc: &Arc<Rpc>,
    ) -> Ended {
        let Some(room) = until(review.deadline(), room).await else {
            return self.late(&policy.name).into();
        };
        let mut review = Some(review.with_room(Some(room)));
        let begun = poll_fn(|context| {
            rpc.work(context, |context| {
                let review = review.take().expect("it is ready when it is polled");
                Poll::Ready(self.begin(policy, review, rpc, context))
            })
        });
        match begun.await {
            Begun::Ended(ended) => ended,
            Begun::Waits(waiting) => waiting.ended().await,
        }
    }

    /// Runs a policy as far as it goes without waiting.
    pub(crate) fn begin(
        &self,
        policy: &Arc<Policy>,
        mut review: Review,
        rpc: &Arc<Rpc>,
        context: &mut Context<'_>,
    ) -> Begun {
        let deadline = review.deadline();
        let started = Instant::now();
        let late = deadline.is_some_and(|deadline| deadline <= started).then(too_late);
        let refused = late.or_else(|| {
            parameters::take(policy, &mut review).err().map(|reason| error(Code::InvalidArgument, reason))
        });
        if let Some(outcome) = refused {
            if let Some(meter) = &policy.meter {
                meter.count(&outcome);
            }
            return Begun::Ended(outcome.into());
        }
        let metered = Metered::begin(policy, started);
        let size = review.size();
        let _large = review.take_large();
        let work = match &policy.function {
            Function::Plain(_) if policy.is_blocking() => self.on_thread(policy, review),
            Function::Plain(_) => {
                let ended = beside_others(size, || run(policy, review));
                if policy.took(started.elapsed(), size) {
                    let name = quoted(&policy.name);
                    log(
                        "WARNING",
                        &format!("policy held up other calls; it will run in a thread: policy={name}"),
                    );
                }
                metered.end(&ended.outcome);
                return Begun::Ended(ended);
            }
            Function::Async(function) => {
                let mut work = Work::Async(Arc::clone(policy), review.subject(), function(review));
                let polled = beside_others(size, || Pin::new(&mut work).poll(context));
                if let Poll::Ready(ended) = polled {
                    metered.end(&ended.outcome);
                    return Begun::Ended(ended);
                }
                work
            }
        };
        Begun::Waits(Waiting { work, size, deadline, metered, rpc: Arc::clone(rpc) })
    }

    fn on_thread(&self, policy: &Arc<Policy>, review: Review) -> Work {
        let (policy, busy) = (Arc::clone(policy), Arc::clone(&self.busy_threads));
        Work::Thread(tokio::task::spawn_blocking(move || {
            if review.remaining() == Some(Duration::ZERO) {
                return too_late().into();
            }
            busy.fetch_add(1, Ordering::Relaxed);
            let ended = run(&policy, review);
            busy.fetch_sub(1, Ordering::Relaxed);
            ended
        }))
    }
}

/// How far a call got without waiting.
pub(crate) enum Begun {
    Ended(Ended),
    Waits(Waiting),
}

/// A call that waits for something. Dropping it cancels it.
pub(crate) struct Waiting {
    work: Work,
    size: usize,
    deadline: Option<Instant>,
    metered: Metered,
    rpc: Arc<Rpc>,
}

impl Waiting {
    /// Waits for the end, until the deadline at most.
    pub(crate) async fn ended(self) -> Ended {
        let Self { mut work, size, deadline, metered, rpc } = self;
        let work = poll_fn(|context| {
            rpc.work(context, |context| beside_others(size, || Pin::new(&mut work).poll(context)))
        });
        let ended = until(deadline, work).await.unwrap_or_else(|| too_late().into());
        metered.end(&ended.outcome);
        ended
    }
}

/// Waits for the result, until the deadline at most.
async fn until<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), work).await.ok(),
    }
}

enum Work {
    Async(Arc<Policy>, Subject, Call),
    Thread(JoinHandle<Ended>),
}

impl Future for Work {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        match &mut *self {
            Self::Async(policy, subject, call) => {
                let _marked = InPolicy::enter();
                match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready((review, result))) => Poll::Ready(ended(policy, review, result)),
                    Err(panic) => Poll::Ready(panicked(policy, Some(subject), &*panic).into()),
                }
            }
            Self::Thread(handle) => {
                let joined = ready!(Pin::new(handle).poll(context));
                Poll::Ready(joined.unwrap_or_else(|gone| error(Code::Internal, gone.to_string()).into()))
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Self::Thread(handle) = self {
            handle.abort(); // which only one that has not begun yet takes notice of
        }
    }
}

/// Works on a review. If it is large, the thread gives the other tasks that it has to another one: parsing takes long.
fn beside_others<T>(size: usize, work: impl FnOnce() -> T) -> T {
    let is_possible = || {
        let runtime = tokio::runtime::Handle::try_current();
        runtime.is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    };
    if size >= LARGE_BYTES && is_possible() { tokio::task::block_in_place(work) } else { work() }
}

/// Calls a plain policy.
fn run(policy: &Policy, mut review: Review) -> Ended {
    let Function::Plain(function) = &policy.function else {
        unreachable!("only plain functions run without a context");
    };
    let _marked = InPolicy::enter();
    let result = catch_unwind(AssertUnwindSafe(|| function(&mut review)));
    let result = match result {
        Ok(result) => catch_unwind(AssertUnwindSafe(|| ended(policy, review, result))),
        Err(panic) => return panicked(policy, Some(&review.subject()), &*panic).into(),
    };
    // In what the policy returned, such as the text of its error.
    result.unwrap_or_else(|panic| panicked(policy, None, &*panic).into())
}

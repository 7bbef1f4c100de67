//! One ReviewStream: receives batches of calls, and sends batches of verdicts.
//!
//! Everything runs when tonic polls for the next message to send, so that a batch whose calls need no
//! waiting needs no task and no channel. While a message cannot be written tonic does not poll: verdicts
//! collect, and no further batch is read.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Status, Streaming};

use crate::answer::{MAX_MESSAGE_BYTES, Outcome, error};
use crate::evaluation::{Begun, Policies};
use crate::payload::Payload;
use crate::pb::{self, verdict};
use crate::review::Review;
use crate::service::{Open, size_limit_as_exhausted};

/// Limit of waiting calls of one stream: four times the default maxInFlight of the gateway.
const MAX_IN_FLIGHT: usize = 4096;

/// Upper bound of a verdict's size without its outcome: tags, lengths and a 64-bit id.
const VERDICT_BYTES: usize = 64;

/// Time without a message after which the worker ends a draining stream: several round trips, for batches
/// that the gateway sent before it received the drain notice.
const QUIET: Duration = Duration::from_millis(500);

/// Interval at which a draining stream checks for the end of its calls.
const QUIET_CHECK: Duration = Duration::from_millis(50);

pub(crate) struct ReviewStream {
    inbound: Streaming<pb::ReviewBatch>,
    policies: Arc<Policies>,
    running: HashMap<u64, AbortHandle>,
    tasks: JoinSet<(u64, Outcome)>,
    batch: pb::VerdictBatch,
    batch_bytes: usize,
    full: VecDeque<pb::VerdictBatch>,
    /// Whether no more messages will be read.
    is_over: bool,
    /// What the stream is to end with, if not with OK.
    failure: Option<Status>,
    draining: Draining,
    last_batch: Instant,
    _open: Open,
}

enum Draining {
    NotYet(Pin<Box<WaitForCancellationFutureOwned>>),
    UntilQuiet(Pin<Box<Sleep>>),
}

impl ReviewStream {
    pub(crate) fn new(
        inbound: Streaming<pb::ReviewBatch>,
        policies: Arc<Policies>,
        drain: CancellationToken,
        open: Open,
    ) -> Self {
        Self {
            inbound,
            policies,
            running: HashMap::new(),
            tasks: JoinSet::new(),
            batch: pb::VerdictBatch::default(),
            batch_bytes: 0,
            full: VecDeque::new(),
            is_over: false,
            failure: None,
            draining: Draining::NotYet(Box::pin(drain.cancelled_owned())),
            last_batch: Instant::now(),
            _open: open,
        }
    }

    /// Ends the stream because of what the gateway, or the connection to it, did.
    fn fail(&mut self, status: Status) {
        self.is_over = true;
        self.running.clear();
        self.tasks.abort_all();
        self.failure = Some(status);
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) {
        if let Draining::NotYet(notice) = &mut self.draining {
            if notice.as_mut().poll(context).is_pending() {
                return;
            }
            self.batch.draining = true;
            self.last_batch = Instant::now();
            self.draining = Draining::UntilQuiet(Box::pin(sleep(QUIET)));
        }
        while let Draining::UntilQuiet(timer) = &mut self.draining
            && !self.is_over
            && timer.as_mut().poll(context).is_ready()
        {
            let quiet = self.last_batch.elapsed();
            self.is_over = self.running.is_empty() && quiet >= QUIET;
            let again = QUIET.saturating_sub(quiet).max(QUIET_CHECK);
            timer.as_mut().reset((Instant::now() + again).into());
        }
    }

    fn poll_tasks(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next_with_id(context) {
            // One that was cancelled is in flight no longer, and its id may even be in use again.
            match ended {
                Ok((task, (number, outcome))) => {
                    if self.running.get(&number).is_some_and(|handle| handle.id() == task) {
                        self.running.remove(&number);
                        self.add(number, outcome);
                    }
                }
                Err(gone) => {
                    let number = self.running.iter().find(|(_, handle)| handle.id() == gone.id());
                    if let Some((&number, _)) = number {
                        self.running.remove(&number);
                        self.add(number, error(Code::Internal, gone.to_string()));
                    }
                }
            }
        }
    }

    /// Reads one batch and runs its calls as far as they go without waiting.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.inbound).poll_next(context)) {
            Some(Ok(batch)) => self.accept(batch, context),
            Some(Err(status)) => self.fail(size_limit_as_exhausted(status)),
            None => self.is_over = true,
        }
        Poll::Ready(())
    }

    fn accept(&mut self, batch: pb::ReviewBatch, context: &mut Context<'_>) {
        let arrived = Instant::now();
        self.last_batch = arrived;
        let payloads: Vec<_> = batch
            .payloads
            .into_iter()
            .map(|payload| Payload::new(payload.admission_request, payload.namespace_object))
            .collect();
        let cancelled: HashSet<u64> = batch.cancelled.into_iter().collect();
        for call in batch.calls {
            if cancelled.contains(&call.id) {
                continue;
            }
            if self.running.contains_key(&call.id) {
                let text = format!("call id {} is used again while its call is in flight", call.id);
                return self.fail(Status::invalid_argument(text));
            }
            let number = call.id;
            match self.begin(&call, &payloads, arrived, context) {
                Begun::Ended(outcome) => self.add(number, outcome),
                Begun::Waits(waiting) => {
                    let handle = self.tasks.spawn(async move { (number, waiting.outcome().await) });
                    self.running.insert(number, handle);
                }
            }
        }
        for number in cancelled {
            if let Some(handle) = self.running.remove(&number) {
                handle.abort();
            }
        }
    }

    fn begin(
        &mut self,
        call: &pb::Call,
        payloads: &[Arc<Payload>],
        arrived: Instant,
        context: &mut Context<'_>,
    ) -> Begun {
        let Some(policy) = self.policies.find(&call.policy) else {
            return Begun::Ended(self.policies.unknown(&call.policy));
        };
        let Some(payload) = payloads.get(call.payload as usize) else {
            let (position, count) = (call.payload, payloads.len());
            let text = format!("the call is for payload {position}, the batch has {count}");
            return Begun::Ended(error(Code::InvalidArgument, text));
        };
        if self.running.len() >= MAX_IN_FLIGHT {
            let text = format!("{MAX_IN_FLIGHT} calls of this stream are in flight");
            return Begun::Ended(error(Code::ResourceExhausted, text));
        }
        let deadline = arrived + Duration::from_millis(call.timeout_millis.into());
        let review = Review::new(Arc::clone(payload), Some(deadline), policy.mutating);
        self.policies.begin(policy, review, context)
    }

    /// Adds a verdict to the next message.
    fn add(&mut self, id: u64, outcome: Outcome) {
        let size = VERDICT_BYTES + outcome.size();
        if self.batch_bytes + size > MAX_MESSAGE_BYTES {
            self.seal();
        }
        self.batch_bytes += size;
        let outcome = match outcome {
            Outcome::Allowed => {
                verdict::Outcome::Response(pb::ReviewResponse { allowed: true, ..Default::default() })
            }
            Outcome::Response(response) => verdict::Outcome::Response(response),
            Outcome::Error(error) => verdict::Outcome::Error(error),
        };
        self.batch.verdicts.push(pb::Verdict { id, outcome: Some(outcome) });
    }

    fn seal(&mut self) {
        self.full.push_back(std::mem::take(&mut self.batch));
        self.batch_bytes = 0;
    }
}

impl Stream for ReviewStream {
    type Item = Result<pb::VerdictBatch, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(batch) = this.full.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            this.poll_tasks(context);
            let read = if this.is_over { Poll::Pending } else { this.poll_read(context) };
            // Last, as a batch may have waited for verdicts to be taken: that is not quiet.
            this.poll_drain(context);
            if this.batch.draining || !this.batch.verdicts.is_empty() {
                this.seal();
            } else if this.is_over && this.running.is_empty() {
                return Poll::Ready(this.failure.take().map(Err));
            } else if read.is_pending() {
                return Poll::Pending;
            }
        }
    }
}

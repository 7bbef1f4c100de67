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

use prost::bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Sleep, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Status, Streaming};

use crate::answer::{Ended, MAX_MESSAGE_BYTES, Outcome, error};
use crate::client::{Held, Rpc};
use crate::evaluation::{Begun, Policies};
use crate::parameters::ById;
use crate::payload::Payload;
use crate::pb::{self, verdict};
use crate::policy::Policy;
use crate::replacer::Served;
use crate::review::Review;
use crate::service::{Open, size_limit_as_exhausted};
use crate::turns::{SLICE, Turn};

/// Limit of waiting calls of one stream: four times the default maxInFlight of the gateway.
pub(crate) const MAX_IN_FLIGHT: usize = 4096;

/// Upper bound of a verdict's size without its outcome: tags, lengths and a 64-bit id.
const VERDICT_BYTES: usize = 64;

/// What a call in flight counts with, beside its payload: its fields, and its task.
const CALL_BYTES: usize = 1024;

/// Time without a message after which the worker ends a draining stream: several round trips, for batches
/// that the gateway sent before it received the drain notice.
const QUIET: Duration = Duration::from_millis(500);

/// Interval at which a draining stream checks for the end of its calls.
const QUIET_CHECK: Duration = Duration::from_millis(50);

pub(crate) struct ReviewStream {
    inbound: Streaming<pb::ReviewBatch>,
    served: Arc<Served>,
    parameters: ById,
    in_flight: HashMap<u64, InFlight>,
    /// The calls that are to begin, in their order.
    queue: VecDeque<u64>,
    /// The earliest deadline of them, or an earlier time.
    expires: Option<Instant>,
    expiry: Option<Pin<Box<Sleep>>>,
    /// Ends when there is room for the call before them.
    beginning: Option<oneshot::Receiver<()>>,
    recent: Option<Recent>,
    tasks: JoinSet<(u64, Ended, Held)>,
    batch: pb::VerdictBatch,
    batch_bytes: usize,
    full: VecDeque<(pb::VerdictBatch, usize)>,
    /// Counts the calls in flight, and the verdicts while they are not sent.
    held: Held,
    /// Whether no more messages will be read.
    is_over: bool,
    /// What the stream is to end with, if not with OK.
    failure: Option<Status>,
    draining: Draining,
    /// When a message came, or a call of one began.
    last_batch: Instant,
    rpc: Arc<Rpc>,
    _open: Open,
}

/// A call without a verdict.
struct InFlight {
    call: pb::Call,
    /// Of its batch; a later one does not change them. `None`: their id is unknown.
    parameters: Option<Bytes>,
    state: State,
    /// The calls that are to begin when this one has ended.
    followers: Vec<u64>,
}

/// A payload here is the one of the call, of which nothing is parsed.
enum State {
    /// It waits for the call before it in its chain.
    Follows,
    /// It is in the queue, until its deadline.
    Queued(Arc<Payload>, Instant),
    /// It waits for room or for something in its policy.
    Runs(Arc<Payload>, AbortHandle),
}

/// What has been parsed of a payload, for the next calls for it.
struct Recent {
    of: Arc<Payload>,
    parsed: Arc<Payload>,
    /// Counts it between two slices.
    room: Option<Turn>,
}

/// What a call of a batch leaves to those after it, before it has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It was refused: the payload that was sent.
    Sent,
    InFlight,
    Cancelled,
}

enum Draining {
    NotYet(Pin<Box<WaitForCancellationFutureOwned>>),
    UntilQuiet(Pin<Box<Sleep>>),
}

impl ReviewStream {
    pub(crate) fn new(
        inbound: Streaming<pb::ReviewBatch>,
        served: Arc<Served>,
        drain: CancellationToken,
        rpc: Arc<Rpc>,
        open: Open,
    ) -> Self {
        Self {
            inbound,
            served,
            parameters: ById::default(),
            in_flight: HashMap::new(),
            queue: VecDeque::new(),
            expires: None,
            expiry: None,
            beginning: None,
            recent: None,
            tasks: JoinSet::new(),
            batch: pb::VerdictBatch::default(),
            batch_bytes: 0,
            full: VecDeque::new(),
            held: rpc.held(0),
            is_over: false,
            failure: None,
            draining: Draining::NotYet(Box::pin(drain.cancelled_owned())),
            last_batch: Instant::now(),
            rpc,
            _open: open,
        }
    }

    /// Ends the stream because of what the gateway, or the connection to it, did.
    fn fail(&mut self, status: Status) {
        self.is_over = true;
        self.queue.clear();
        self.recent = None;
        self.in_flight.clear();
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
            self.is_over = self.in_flight.is_empty() && quiet >= QUIET;
            let again = QUIET.saturating_sub(quiet).max(QUIET_CHECK);
            timer.as_mut().reset((Instant::now() + again).into());
        }
    }

    fn poll_tasks(&mut self, context: &mut Context<'_>) {
        while self.full.is_empty()
            && let Poll::Ready(Some(ended)) = self.tasks.poll_join_next_with_id(context)
        {
            // One that was cancelled is in flight no longer, and its id may even be in use again.
            let is_task =
                |flight: &InFlight, id| matches!(&flight.state, State::Runs(_, task) if task.id() == id);
            match ended {
                Ok((task, (id, ended, _held))) => {
                    if self.in_flight.get(&id).is_some_and(|flight| is_task(flight, task)) {
                        self.end(id, ended, None);
                    }
                }
                Err(gone) if gone.is_cancelled() => {}
                Err(gone) => {
                    let found = self.in_flight.iter().find(|(_, flight)| is_task(flight, gone.id()));
                    if let Some((&id, _)) = found {
                        self.end(id, error(Code::Internal, gone.to_string()).into(), None);
                    }
                }
            }
        }
    }

    /// Answers the calls in the queue whose deadline has passed.
    fn poll_expiry(&mut self, context: &mut Context<'_>) {
        while let Some(expires) = self.expires.filter(|_| !self.queue.is_empty()) {
            let expires = tokio::time::Instant::from(expires);
            let timer = self.expiry.get_or_insert_with(|| Box::pin(sleep_until(expires)));
            if timer.deadline() != expires {
                timer.as_mut().reset(expires);
            }
            if timer.as_mut().poll(context).is_pending() {
                return;
            }
            let now = Instant::now();
            let deadline_of = |in_flight: &HashMap<u64, InFlight>, id: &u64| match in_flight.get(id)?.state {
                State::Queued(_, deadline) => Some(deadline),
                _ => None,
            };
            let (late, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue)
                .into_iter()
                .partition(|id| deadline_of(&self.in_flight, id).is_some_and(|deadline| deadline <= now));
            self.expires = others.iter().filter_map(|id| deadline_of(&self.in_flight, id)).min();
            self.queue = others.into();
            let policies = self.served.now();
            for id in late {
                let outcome = self.in_flight.get(&id).map(|flight| policies.late(&flight.call.policy));
                if let Some(outcome) = outcome {
                    self.end(id, outcome.into(), None);
                }
            }
        }
    }

    /// Reads a message, if there is one, and begins calls for a slice of time, when it is the turn of the connection.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let rpc = Arc::clone(&self.rpc);
        rpc.work(context, |context| {
            let begun = Instant::now();
            let mut worked = Poll::Pending;
            if !self.is_over
                && let Poll::Ready(read) = Pin::new(&mut self.inbound).poll_next(context)
            {
                worked = Poll::Ready(());
                match read {
                    Some(Ok(batch)) => self.accept(batch),
                    Some(Err(status)) => self.fail(size_limit_as_exhausted(status)),
                    None => self.is_over = true,
                }
            }
            // A message is to be sent before there are more.
            while self.full.is_empty()
                && (worked.is_pending() || begun.elapsed() < SLICE)
                && self.poll_beginning(context).is_ready()
                && let Some(id) = self.queue.pop_front()
            {
                worked = Poll::Ready(());
                self.last_batch = begun;
                self.begin(id, context);
            }
            self.keep_recent();
            worked
        })
    }

    /// Waits until there is room for the call before those of the queue.
    fn poll_beginning(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(beginning) = &mut self.beginning {
            // Its other side is dropped then, or when the call ends without.
            let _ = ready!(Pin::new(beginning).poll(context));
            self.beginning = None;
        }
        Poll::Ready(())
    }

    /// Keeps what is parsed until the next slice, if the next call needs it and there is room for it.
    fn keep_recent(&mut self) {
        let Some(Recent { of, room, .. }) = &mut self.recent else { return };
        let next = self.queue.front().and_then(|id| self.in_flight.get(id));
        let is_needed = next.is_some_and(
            |flight| matches!(&flight.state, State::Queued(payload, _) if Arc::ptr_eq(payload, of)),
        );
        if is_needed && room.is_none() {
            *room = self.rpc.room_for_parsed(of.size());
        }
        if !is_needed || room.is_none() {
            self.recent = None;
        }
    }

    /// Takes the calls of a message.
    fn accept(&mut self, batch: pb::ReviewBatch) {
        self.last_batch = Instant::now();
        if let Err(problem) = self.parameters.take(batch.parameters, &self.rpc) {
            return self.fail(Status::invalid_argument(problem));
        }
        let keep = |bytes| self.rpc.keep(bytes);
        let payloads = batch
            .payloads
            .into_iter()
            .map(|payload| Payload::new(keep(payload.admission_request), keep(payload.namespace_object)));
        let payloads: Vec<_> = payloads.collect();
        let cancelled: HashSet<_> = batch.cancelled.into_iter().collect();
        if !cancelled.is_empty() {
            cancelled.iter().for_each(|id| self.cancel(*id));
            self.queue.retain(|id| self.in_flight.contains_key(id));
        }
        let has_chains = batch.calls.iter().any(|call| call.after != 0);
        // By the id of a call: the number of its payload, and what it leaves.
        let mut earlier: HashMap<u64, (u32, Left)> = HashMap::new();
        for (index, call) in batch.calls.into_iter().enumerate() {
            let (id, position) = (call.id, call.payload);
            let before = earlier.get(&call.after).filter(|(of, _)| call.after != 0 && *of == position);
            let before = before.map(|(_, left)| *left);
            let left = if cancelled.contains(&id) || before == Some(Left::Cancelled) {
                Left::Cancelled
            } else if self.in_flight.contains_key(&id) {
                let text = format!("call id {id} is used again while its call is in flight");
                return self.fail(Status::invalid_argument(text));
            } else {
                self.take(call, before, &payloads, index >= MAX_IN_FLIGHT)
            };
            if has_chains {
                earlier.insert(id, (position, left));
            }
        }
    }

    /// Takes a call of a message, or refuses it.
    fn take(
        &mut self,
        call: pb::Call,
        before: Option<Left>,
        payloads: &[Arc<Payload>],
        is_excess: bool,
    ) -> Left {
        let id = call.id;
        let refused = match payloads.get(call.payload as usize) {
            None => {
                let text =
                    format!("the call is for payload {}, the batch has {}", call.payload, payloads.len());
                Err(error(Code::InvalidArgument, text))
            }
            Some(_) if call.after != 0 && before.is_none() => {
                let text =
                    format!("no earlier call of the batch has the id {} and the same payload", call.after);
                Err(error(Code::InvalidArgument, text))
            }
            Some(_) if is_excess || self.in_flight.len() >= MAX_IN_FLIGHT => {
                let text = format!("{MAX_IN_FLIGHT} calls of this stream are in flight");
                Err(error(Code::ResourceExhausted, text))
            }
            Some(payload) => Ok(payload),
        };
        let payload = match refused {
            Ok(payload) => payload,
            Err(outcome) => {
                self.add(id, call.after != 0, outcome);
                return Left::Sent;
            }
        };
        let parameters = self.parameters.get(call.parameters);
        let follows = (before == Some(Left::InFlight)).then_some(call.after);
        let flight = InFlight { call, parameters, state: State::Follows, followers: Vec::new() };
        self.in_flight.insert(id, flight);
        match follows.and_then(|after| self.in_flight.get_mut(&after)) {
            Some(before) => before.followers.push(id),
            None => {
                self.enqueue(id, payload, self.last_batch);
                self.queue.push_back(id);
            }
        }
        Left::InFlight
    }

    /// Has a call wait for its turn; `start` is the beginning of its timeout.
    fn enqueue(&mut self, id: u64, payload: &Arc<Payload>, start: Instant) {
        let Some(flight) = self.in_flight.get_mut(&id) else { return };
        let deadline = start + Duration::from_millis(flight.call.timeout_millis.into());
        flight.state = State::Queued(Arc::clone(payload), deadline);
        self.expires = Some(self.expires.map_or(deadline, |expires| expires.min(deadline)));
    }

    /// Runs a call as far as it goes without waiting.
    fn begin(&mut self, id: u64, context: &mut Context<'_>) {
        let Some(flight) = self.in_flight.get_mut(&id) else { return };
        let State::Queued(payload, deadline) = &flight.state else { return };
        let (payload, deadline) = (Arc::clone(payload), *deadline);
        let policies = self.served.now();
        let Some(policy) = policies.find(&flight.call.policy).cloned() else {
            let outcome = policies.unknown(&flight.call.policy);
            return self.end(id, outcome.into(), None);
        };
        let Some(parameters) = flight.parameters.take() else {
            let text = "the call has an id of parameters that this stream has not had";
            return self.end(id, error(Code::InvalidArgument, text).into(), None);
        };
        let review = |payload, room| {
            let review = Review::new(payload, Some(deadline), policy.mutating);
            let review = review.with_traceparent(&flight.call.traceparent);
            review.with_parameters_json(parameters).with_room(room)
        };
        let room = self.rpc.try_room(payload.size());
        if room.is_none() && deadline > Instant::now() {
            self.recent = None;
            let review = review(payload.fresh(), None);
            return self.begin_later(id, payload, policies, &policy, review);
        }
        let parsed = match &self.recent {
            Some(recent) if Arc::ptr_eq(&recent.of, &payload) => Arc::clone(&recent.parsed),
            _ => {
                // Before the next payload is parsed: into the same memory.
                self.recent = None;
                payload.fresh()
            }
        };
        let review = review(Arc::clone(&parsed), room);
        if self.recent.is_none() {
            self.recent = Some(Recent { of: Arc::clone(&payload), parsed: Arc::clone(&parsed), room: None });
        }
        match policies.begin(&policy, review, &self.rpc, context) {
            Begun::Ended(ended) => self.end(id, ended, Some(&parsed)),
            Begun::Waits(waiting) => self.run(id, payload, waiting.ended()),
        }
    }

    /// Runs a call as soon as there is room for it; then the next one begins.
    fn begin_later(
        &mut self,
        id: u64,
        payload: Arc<Payload>,
        policies: Arc<Policies>,
        policy: &Arc<Policy>,
        review: Review,
    ) {
        let (policy, rpc) = (Arc::clone(policy), Arc::clone(&self.rpc));
        let (began, beginning) = oneshot::channel::<()>();
        self.beginning = Some(beginning);
        self.run(id, payload, async move {
            let size = review.size();
            let room = async {
                let room = rpc.room(size).await;
                drop(began);
                room
            };
            policies.evaluate(&policy, review, room, &rpc).await
        });
    }

    /// Runs the rest of a call in a task.
    fn run(&mut self, id: u64, payload: Arc<Payload>, work: impl Future<Output = Ended> + Send + 'static) {
        let rpc = Arc::clone(&self.rpc);
        let task = self.tasks.spawn(async move {
            let Ended { outcome, .. } = work.await;
            let held = rpc.held(outcome.size());
            (id, outcome.into(), held)
        });
        if let Some(flight) = self.in_flight.get_mut(&id) {
            flight.state = State::Runs(payload, task);
        }
    }

    /// Adds the verdict of a call, and puts the calls after it at the beginning of the queue. `parsed` is what the policy
    /// has got.
    fn end(&mut self, id: u64, Ended { outcome, change }: Ended, parsed: Option<&Arc<Payload>>) {
        let Some(flight) = self.in_flight.remove(&id) else { return };
        let patch = if flight.followers.is_empty() { None } else { outcome.patch() };
        self.add(id, flight.call.after != 0, outcome);
        let (State::Queued(mut payload, _) | State::Runs(mut payload, _)) = flight.state else { return };
        if let Some(patch) = patch {
            let patch = self.rpc.keep(patch);
            payload = payload.after(patch.clone(), None);
            if let Some(parsed) = parsed {
                let object = change.and_then(|change| parsed.object_after(change));
                let parsed = parsed.after(patch, object);
                self.recent = Some(Recent { of: Arc::clone(&payload), parsed, room: None });
            }
        }
        if payload.patch_bytes() > MAX_MESSAGE_BYTES {
            return self.refuse(flight.followers, payload.patch_bytes());
        }
        let now = Instant::now();
        for follower in flight.followers.into_iter().rev() {
            self.enqueue(follower, &payload, now);
            self.queue.push_front(follower);
        }
    }

    /// Refuses calls behind patches that no message could have, and all calls after them.
    fn refuse(&mut self, mut calls: Vec<u64>, size: usize) {
        while let Some(id) = calls.pop() {
            let Some(flight) = self.in_flight.remove(&id) else { continue };
            let text = format!(
                "the calls before this one leave patches of {size} bytes, more than {MAX_MESSAGE_BYTES}"
            );
            self.add(id, true, error(Code::ResourceExhausted, text));
            calls.extend(flight.followers);
        }
    }

    /// Cancels a call in flight and all calls after it, which the queue still has.
    fn cancel(&mut self, id: u64) {
        let mut unwanted = vec![id];
        while let Some(id) = unwanted.pop() {
            let Some(flight) = self.in_flight.remove(&id) else { continue };
            unwanted.extend(flight.followers);
            match flight.state {
                State::Runs(_, task) => task.abort(),
                State::Queued(..) => {}
                State::Follows => {
                    if let Some(before) = self.in_flight.get_mut(&flight.call.after) {
                        before.followers.retain(|follower| *follower != id);
                    }
                }
            }
        }
    }

    /// Adds a verdict to the next message.
    fn add(&mut self, id: u64, chained: bool, outcome: Outcome) {
        let size = VERDICT_BYTES + outcome.size();
        if self.batch_bytes + size > MAX_MESSAGE_BYTES {
            self.seal();
        }
        self.batch_bytes += size;
        let outcome = match outcome {
            Outcome::Allowed => {
                verdict::Outcome::Response(pb::ReviewResponse { allowed: true, ..Default::default() })
            }
            Outcome::Response(response) => verdict::Outcome::Response(*response),
            Outcome::Error(error) => verdict::Outcome::Error(error),
        };
        self.batch.verdicts.push(pb::Verdict { id, outcome: Some(outcome), chained });
    }

    fn seal(&mut self) {
        let bytes = std::mem::take(&mut self.batch_bytes);
        self.full.push_back((std::mem::take(&mut self.batch), bytes));
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<pb::VerdictBatch, Status>>> {
        loop {
            if let Some((batch, _)) = self.full.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            self.poll_tasks(context);
            self.poll_expiry(context);
            let worked = self.poll_work(context);
            // Last, as a batch may have waited for verdicts to be taken: that is not quiet.
            self.poll_drain(context);
            if self.batch.draining || !self.batch.verdicts.is_empty() {
                self.seal();
            } else if self.is_over && self.in_flight.is_empty() {
                return Poll::Ready(self.failure.take().map(Err));
            } else if worked.is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Stream for ReviewStream {
    type Item = Result<pb::VerdictBatch, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let message = this.poll_message(context);
        let unsent = this.batch_bytes + this.full.iter().map(|(_, bytes)| bytes).sum::<usize>();
        this.held.set(unsent + this.in_flight.len() * CALL_BYTES);
        message
    }
}

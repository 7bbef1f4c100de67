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
use tokio::task::{AbortHandle, JoinHandle, JoinSet, yield_now};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Status, Streaming};

use crate::answer::{Ended, MAX_MESSAGE_BYTES, Outcome, error};
use crate::client::Rpc;
use crate::evaluation::{Begun, Policies};
use crate::parameters::ById;
use crate::payload::Payload;
use crate::pb::{self, verdict};
use crate::review::Review;
use crate::service::{Open, size_limit_as_exhausted};

/// Limit of waiting calls of one stream: four times the default maxInFlight of the gateway.
pub(crate) const MAX_IN_FLIGHT: usize = 4096;

/// Upper bound of a verdict's size without its outcome: tags, lengths and a 64-bit id.
const VERDICT_BYTES: usize = 64;

/// How long a batch is worked on before others have their turn.
const SLICE: Duration = Duration::from_millis(4);

/// Time without a message after which the worker ends a draining stream: several round trips, for batches
/// that the gateway sent before it received the drain notice.
const QUIET: Duration = Duration::from_millis(500);

/// Interval at which a draining stream checks for the end of its calls.
const QUIET_CHECK: Duration = Duration::from_millis(50);

pub(crate) struct ReviewStream {
    inbound: Streaming<pb::ReviewBatch>,
    policies: Arc<Policies>,
    parameters: ById,
    in_flight: HashMap<u64, InFlight>,
    tasks: JoinSet<(u64, Ended)>,
    batch: pb::VerdictBatch,
    batch_bytes: usize,
    full: VecDeque<pb::VerdictBatch>,
    /// The batch whose calls have not all begun; `None`: the next one is to be read.
    current: Option<Batch>,
    /// Ends when others have had their turn, and what has arrived for them has been looked for.
    others_turn: Option<JoinHandle<()>>,
    /// Whether no more messages will be read.
    is_over: bool,
    /// What the stream is to end with, if not with OK.
    failure: Option<Status>,
    draining: Draining,
    last_batch: Instant,
    rpc: Arc<Rpc>,
    _open: Open,
}

/// A call that waits: for something in its policy, or in a chain for the end of another call.
struct InFlight {
    /// `None` until the call before it has ended.
    task: Option<AbortHandle>,
    /// The payload of the policy; until the call before it has ended, the one that was sent.
    payload: Arc<Payload>,
    /// The id of the call before it in its chain; 0: none.
    after: u64,
    /// The calls that begin when this one has ended.
    followers: Vec<Asked>,
}

/// A call with its parameters, which a later batch does not change.
struct Asked {
    call: pb::Call,
    /// `None`: their id is unknown.
    parameters: Option<Bytes>,
}

/// What is left of a batch.
struct Batch {
    calls: std::iter::Enumerate<std::vec::IntoIter<pb::Call>>,
    payloads: Vec<Option<Sent>>,
    cancelled: HashSet<u64>,
    has_chains: bool,
    /// What its calls have left that have ended between two slices, by their ids; empty in a batch without chains.
    ended: HashMap<u64, Arc<Payload>>,
    arrived: Instant,
}

/// A payload of a batch, until the last call for it.
struct Sent {
    payload: Arc<Payload>,
    remaining_calls: usize,
    /// By the id of a call for it; empty in a batch without chains.
    left: HashMap<u64, Left>,
}

/// What a call leaves to the calls after it.
enum Left {
    /// The payload at its end.
    Ended(Arc<Payload>),
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
        policies: Arc<Policies>,
        drain: CancellationToken,
        rpc: Arc<Rpc>,
        open: Open,
    ) -> Self {
        Self {
            inbound,
            policies,
            parameters: ById::default(),
            in_flight: HashMap::new(),
            tasks: JoinSet::new(),
            batch: pb::VerdictBatch::default(),
            batch_bytes: 0,
            full: VecDeque::new(),
            current: None,
            others_turn: None,
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
        self.current = None;
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
            let is_task = |flight: &InFlight, id| flight.task.as_ref().is_some_and(|task| task.id() == id);
            match ended {
                Ok((task, (id, ended))) => {
                    if self.in_flight.get(&id).is_some_and(|flight| is_task(flight, task)) {
                        self.end(id, ended, context);
                    }
                }
                Err(gone) => {
                    let found = self.in_flight.iter().find(|(_, flight)| is_task(flight, gone.id()));
                    if let Some((&id, _)) = found {
                        self.end(id, error(Code::Internal, gone.to_string()).into(), context);
                    }
                }
            }
        }
    }

    /// Reads a batch if there is none, and runs its calls for a slice of time as far as they go without waiting.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.current.is_none() {
            match ready!(Pin::new(&mut self.inbound).poll_next(context)) {
                Some(Ok(batch)) => self.accept(batch),
                Some(Err(status)) => self.fail(size_limit_as_exhausted(status)),
                None => self.is_over = true,
            }
        }
        let begun = Instant::now();
        while let Some(mut batch) = self.current.take() {
            self.last_batch = Instant::now();
            let Some((index, call)) = batch.calls.next() else { break };
            match self.take_next(&mut batch, index, call, context) {
                Ok(()) => self.current = Some(batch),
                Err(status) => self.fail(status),
            }
            // A message is to be sent before there are more.
            if !self.full.is_empty() || begun.elapsed() >= SLICE {
                // In a task: tonic sends the verdicts so far and polls again, without a turn for others.
                self.others_turn = Some(tokio::spawn(yield_now()));
                break;
            }
        }
        Poll::Ready(())
    }

    fn accept(&mut self, batch: pb::ReviewBatch) {
        if let Err(problem) = self.parameters.take(batch.parameters, &self.rpc) {
            return self.fail(Status::invalid_argument(problem));
        }
        let mut payloads: Vec<_> = batch
            .payloads
            .into_iter()
            .map(|payload| {
                let keep = |bytes| self.rpc.keep(bytes);
                Payload::new(keep(payload.admission_request), keep(payload.namespace_object))
            })
            .map(|payload| Some(Sent { payload, remaining_calls: 0, left: HashMap::new() }))
            .collect();
        for call in &batch.calls {
            if let Some(Some(sent)) = payloads.get_mut(call.payload as usize) {
                sent.remaining_calls += 1;
            }
        }
        for id in &batch.cancelled {
            self.cancel(*id);
        }
        self.current = Some(Batch {
            has_chains: batch.calls.iter().any(|call| call.after != 0),
            calls: batch.calls.into_iter().enumerate(),
            payloads,
            cancelled: batch.cancelled.into_iter().collect(),
            ended: HashMap::new(),
            arrived: Instant::now(),
        });
    }

    /// Takes one call of a batch; fails if the stream is to end.
    fn take_next(
        &mut self,
        batch: &mut Batch,
        index: usize,
        call: pb::Call,
        context: &mut Context<'_>,
    ) -> Result<(), Status> {
        let (id, position) = (call.id, call.payload as usize);
        let is_cancelled = batch.cancelled.contains(&id);
        if !is_cancelled && self.in_flight.contains_key(&id) {
            let text = format!("call id {id} is used again while its call is in flight");
            return Err(Status::invalid_argument(text));
        }
        let count = batch.payloads.len();
        let Some(Some(sent)) = batch.payloads.get_mut(position) else {
            if !is_cancelled {
                let text = format!("the call is for payload {position}, the batch has {count}");
                self.add(id, call.after != 0, error(Code::InvalidArgument, text));
            }
            return Ok(());
        };
        let mut before = sent.left.get(&call.after).filter(|_| call.after != 0);
        let ended;
        if matches!(before, Some(Left::InFlight))
            && let Some(payload) = batch.ended.get(&call.after)
        {
            ended = Left::Ended(Arc::clone(payload));
            before = Some(&ended);
        }
        let left = if is_cancelled || matches!(before, Some(Left::Cancelled)) {
            Left::Cancelled
        } else if index >= MAX_IN_FLIGHT {
            self.add(id, call.after != 0, too_many());
            Left::Ended(Arc::clone(&sent.payload))
        } else {
            let asked = Asked { parameters: self.parameters.get(call.parameters), call };
            self.take(asked, &sent.payload, before, batch.arrived, context)
        };
        if batch.has_chains {
            batch.ended.remove(&id);
            sent.left.insert(id, left);
        }
        sent.remaining_calls -= 1;
        if sent.remaining_calls == 0 {
            // The next payload is parsed into the same memory.
            batch.payloads[position] = None;
        }
        Ok(())
    }

    /// Begins a call of a batch, or has it wait for the call before it in its chain.
    fn take(
        &mut self,
        asked: Asked,
        sent: &Arc<Payload>,
        before: Option<&Left>,
        arrived: Instant,
        context: &mut Context<'_>,
    ) -> Left {
        let call = &asked.call;
        let is_chained = call.after != 0;
        if is_chained && before.is_none() {
            let text = format!("no earlier call of the batch has the id {} and the same payload", call.after);
            self.add(call.id, is_chained, error(Code::InvalidArgument, text));
            return Left::Ended(Arc::clone(sent));
        }
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            self.add(call.id, is_chained, too_many());
            return Left::Ended(Arc::clone(sent));
        }
        match before {
            None => self.begin(&asked, sent, arrived, context),
            Some(Left::Ended(payload)) => self.begin(&asked, payload, Instant::now(), context),
            Some(_) => {
                let payload = Arc::clone(sent);
                let waits = InFlight { task: None, payload, after: call.after, followers: Vec::new() };
                self.in_flight.insert(call.id, waits);
                let before =
                    self.in_flight.get_mut(&call.after).expect("a call of this batch that has not ended");
                before.followers.push(asked);
                Left::InFlight
            }
        }
    }

    /// Runs a call as far as it goes without waiting; `start` is the beginning of its timeout.
    fn begin(
        &mut self,
        Asked { call, parameters }: &Asked,
        payload: &Arc<Payload>,
        start: Instant,
        context: &mut Context<'_>,
    ) -> Left {
        let (id, after) = (call.id, call.after);
        let begun = match (self.policies.find(&call.policy), parameters) {
            (None, _) => Begun::Ended(self.policies.unknown(&call.policy).into()),
            (Some(_), None) => {
                let text = "the call has an id of parameters that this stream has not had";
                Begun::Ended(error(Code::InvalidArgument, text).into())
            }
            (Some(policy), Some(parameters)) => {
                let deadline = start + Duration::from_millis(call.timeout_millis.into());
                let review = Review::new(Arc::clone(payload), Some(deadline), policy.mutating);
                let review = review.with_traceparent(&call.traceparent);
                let review = review.with_parameters_json(parameters.clone());
                self.policies.begin(policy, review, context)
            }
        };
        match begun {
            Begun::Ended(Ended { outcome, change }) => {
                self.add(id, after != 0, outcome);
                Left::Ended(change.map_or_else(|| Arc::clone(payload), |change| payload.after(change)))
            }
            Begun::Waits(waiting) => {
                let task = Some(self.tasks.spawn(async move { (id, waiting.ended().await) }));
                let payload = Arc::clone(payload);
                // It may have waited for another call until now, and have followers.
                let followers = self.in_flight.remove(&id).map_or_else(Vec::new, |flight| flight.followers);
                self.in_flight.insert(id, InFlight { task, payload, after, followers });
                Left::InFlight
            }
        }
    }

    /// Adds the verdict of a call in flight, and begins the calls after it.
    fn end(&mut self, id: u64, ended: Ended, context: &mut Context<'_>) {
        let Some(flight) = self.in_flight.remove(&id) else { return };
        self.add(id, flight.after != 0, ended.outcome);
        let has_chains = self.current.as_ref().is_some_and(|batch| batch.has_chains);
        if flight.followers.is_empty() && !has_chains {
            return;
        }
        let payload = ended.change.map_or(Arc::clone(&flight.payload), |change| flight.payload.after(change));
        let mut ready = vec![(id, payload, flight.followers)];
        while let Some((id, payload, calls)) = ready.pop() {
            for asked in calls {
                if let Left::Ended(left) = self.begin(&asked, &payload, Instant::now(), context) {
                    let flight = self.in_flight.remove(&asked.call.id);
                    ready.extend(flight.map(|flight| (asked.call.id, left, flight.followers)));
                }
            }
            if let Some(batch) = self.current.as_mut().filter(|batch| batch.has_chains) {
                batch.ended.insert(id, payload);
            }
        }
    }

    /// Cancels a call in flight and all calls after it.
    fn cancel(&mut self, id: u64) {
        let mut unwanted = vec![id];
        while let Some(id) = unwanted.pop() {
            let Some(flight) = self.in_flight.remove(&id) else { continue };
            unwanted.extend(flight.followers.iter().map(|asked| asked.call.id));
            match flight.task {
                Some(task) => task.abort(),
                None => {
                    if let Some(before) = self.in_flight.get_mut(&flight.after) {
                        before.followers.retain(|asked| asked.call.id != id);
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
        self.full.push_back(std::mem::take(&mut self.batch));
        self.batch_bytes = 0;
    }
}

fn too_many() -> Outcome {
    error(Code::ResourceExhausted, format!("{MAX_IN_FLIGHT} calls of this stream are in flight"))
}

impl Stream for ReviewStream {
    type Item = Result<pb::VerdictBatch, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(batch) = this.full.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            if let Some(turn) = &mut this.others_turn {
                let _ = ready!(Pin::new(turn).poll(context));
                this.others_turn = None;
            }
            this.poll_tasks(context);
            let read =
                if this.is_over && this.current.is_none() { Poll::Pending } else { this.poll_read(context) };
            // Last, as a batch may have waited for verdicts to be taken: that is not quiet.
            this.poll_drain(context);
            if this.batch.draining || !this.batch.verdicts.is_empty() {
                this.seal();
            } else if this.is_over && this.current.is_none() && this.in_flight.is_empty() {
                return Poll::Ready(this.failure.take().map(Err));
            } else if read.is_pending() {
                return Poll::Pending;
            }
        }
    }
}

//! The connections of a worker and their open RPCs, within limits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;
use std::time::Instant;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use prost::bytes::{Buf, Bytes};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::HeaderMap;

use crate::evaluation::LARGE_BYTES;
use crate::store::{End, Owner, Store};
use crate::turns::{Slices, Turn, Turns};

/// Open connections.
const MAX_CONNECTIONS: usize = 1024;

/// Open RPCs of all connections.
const MAX_RPCS: usize = 16_384;

/// JSON of the parameters that all streams and their calls keep.
const MAX_PARAMETER_BYTES: usize = 64 * 1024 * 1024;

/// What has arrived and is not answered, or not read: incomplete messages, the payloads of calls in flight, the
/// patches that calls of a chain leave, and answers.
const MAX_RECEIVED_BYTES: usize = 256 * 1024 * 1024;

/// JSON of the calls that are evaluated: it takes several times as much when it is parsed.
const MAX_EVALUATED_BYTES: usize = 32 * 1024 * 1024;

/// JSON that streams keep parsed between two slices, for the next calls on it.
const MAX_PARSED_BYTES: usize = 4 * 1024 * 1024;

/// Parts of an answer below this length are not counted: while one is not written, there is no other.
const SMALL_BYTES: usize = 4096;

/// Of a gRPC message: a flag and the length.
const HEADER_BYTES: usize = 5;

/// The bounds of a worker, for all its connections together.
#[derive(Debug)]
pub(crate) struct Limits {
    parameters: Store,
    received: Store,
    rpcs: Store,
    evaluated: Arc<Turns>,
    /// Counts the threads that work on large reviews: they leave processors to the others.
    large: Arc<Turns>,
    parsed: Arc<Turns>,
    last_id: AtomicU64,
    started: Instant,
    connections: Mutex<HashMap<u64, Arc<Client>>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            parameters: Store::new("bytes of parameters", MAX_PARAMETER_BYTES),
            received: Store::new("bytes of requests and answers", MAX_RECEIVED_BYTES),
            rpcs: Store::new("open calls", MAX_RPCS),
            evaluated: Arc::new(Turns::new(MAX_EVALUATED_BYTES)),
            large: Arc::new(Turns::new(available_parallelism().map_or(1, |count| count.get().div_ceil(2)))),
            parsed: Arc::new(Turns::new(MAX_PARSED_BYTES)),
            last_id: AtomicU64::new(0),
            started: Instant::now(),
            connections: Mutex::default(),
        }
    }
}

impl Limits {
    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed)
    }

    /// Takes an accepted connection. Beyond the limit another one is closed.
    pub(crate) fn connected(self: &Arc<Self>, host: Option<IpAddr>) -> Connection {
        let client = Arc::new(Client {
            id: self.next_id(),
            host,
            rpcs: AtomicUsize::new(0),
            last_heard: AtomicU64::new(self.now()),
            close: CancellationToken::new(),
            slices: Arc::default(),
        });
        let mut open = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CONNECTIONS
            && let Some(id) = least(&open)
            && let Some(closed) = open.remove(&id)
        {
            closed.close.cancel();
        }
        open.insert(client.id, Arc::clone(&client));
        Connection { client, limits: Arc::clone(self) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The connection that is missed least, of the host that has most: one without an RPC, or else the one that has
/// sent nothing for longest.
fn least(open: &HashMap<u64, Arc<Client>>) -> Option<u64> {
    let mut counts = HashMap::new();
    for client in open.values() {
        *counts.entry(client.host).or_insert(0_usize) += 1;
    }
    let value = |client: &&Arc<Client>| {
        let (rpcs, last_heard) = (client.rpcs.load(Relaxed), client.last_heard.load(Relaxed));
        (usize::MAX - counts[&client.host], rpcs > 0, last_heard, client.id)
    };
    open.values().min_by_key(value).map(|client| client.id)
}

/// One connection, as it was accepted.
#[derive(Debug)]
struct Client {
    id: u64,
    /// `None` for a unix socket.
    host: Option<IpAddr>,
    /// Open ones.
    rpcs: AtomicUsize,
    /// When the last part of a request came, in milliseconds since the start of the worker.
    last_heard: AtomicU64,
    close: CancellationToken,
    slices: Arc<Slices>,
}

/// A connection for as long as it is open.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Arc<Client>,
    limits: Arc<Limits>,
}

impl Connection {
    /// Waits until the worker is to close it.
    pub(crate) fn excess(&self) -> impl Future<Output = ()> + Send + 'static {
        self.client.close.clone().cancelled_owned()
    }

    /// Counts an RPC until it is dropped. Beyond the limit, the connection that has most loses one.
    pub(crate) fn open(&self) -> Arc<Rpc> {
        let (client, limits) = (Arc::clone(&self.client), Arc::clone(&self.limits));
        let end = Arc::new(End::new(client.close.clone()));
        let owner = Owner { client: client.id, rpc: limits.next_id(), end };
        client.rpcs.fetch_add(1, Relaxed);
        limits.rpcs.change(&owner, 0, 1);
        Arc::new(Rpc { owner, client, limits })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.limits.connections.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.client.id);
    }
}

/// One open RPC, and whom it belongs to.
#[derive(Debug)]
pub(crate) struct Rpc {
    owner: Owner,
    client: Arc<Client>,
    limits: Arc<Limits>,
}

impl Rpc {
    /// Waits until the RPC is to end because of a limit.
    pub(crate) async fn excess(&self) -> tonic::Status {
        std::future::poll_fn(|context| self.end().poll(context)).await
    }

    fn end(&self) -> &End {
        &self.owner.end
    }

    fn heard(&self) {
        self.client.last_heard.store(self.limits.now(), Relaxed);
    }

    /// Works for the connection when it is its turn.
    pub(crate) fn work<T>(
        &self,
        context: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.client.slices.work(context, work)
    }

    /// Room for the evaluation of so much JSON, if there is any.
    pub(crate) fn try_room(&self, size: usize) -> Option<Room> {
        let (id, Limits { evaluated, large, .. }) = (self.client.id, &*self.limits);
        let evaluated = evaluated.try_take(id, size)?;
        let large = if size < LARGE_BYTES { None } else { Some(large.try_take(id, 1)?) };
        Some(Room { _evaluated: evaluated, large })
    }

    /// Waits for room.
    pub(crate) async fn room(&self, size: usize) -> Room {
        if let Some(room) = self.try_room(size) {
            return room;
        }
        let (id, Limits { evaluated, large, .. }) = (self.client.id, &*self.limits);
        let evaluated = evaluated.take(id, size).await;
        let large = if size < LARGE_BYTES { None } else { Some(large.take(id, 1).await) };
        Room { _evaluated: evaluated, large }
    }

    /// Room for so much JSON that stays parsed, if there is any.
    pub(crate) fn room_for_parsed(&self, size: usize) -> Option<Turn> {
        self.limits.parsed.try_take(self.client.id, size)
    }

    /// Counts a part of a request or an answer until its last copy is dropped.
    pub(crate) fn keep(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.counted(bytes, |limits| &limits.received)
    }

    /// Counts parameters likewise.
    pub(crate) fn keep_parameters(self: &Arc<Self>, json: Bytes) -> Bytes {
        self.counted(json, |limits| &limits.parameters)
    }

    /// Counts what is not answered, or not read, until it is dropped.
    pub(crate) fn held(self: &Arc<Self>, size: usize) -> Held {
        let mut held = Held { rpc: Arc::clone(self), store: |limits| &limits.received, size: 0 };
        held.set(size);
        held
    }

    fn counted(self: &Arc<Self>, bytes: Bytes, store: fn(&Limits) -> &Store) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let mut held = Held { rpc: Arc::clone(self), store, size: 0 };
        held.set(bytes.len());
        Bytes::from_owner(Counted { bytes, _held: held })
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        self.end().gone();
        self.client.rpcs.fetch_sub(1, Relaxed);
        self.limits.rpcs.change(&self.owner, 1, 0);
    }
}

/// What an evaluation uses until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    _evaluated: Turn,
    /// Of a large review: until its policy waits.
    pub(crate) large: Option<Turn>,
}

/// What counts until it is dropped.
pub(crate) struct Held {
    rpc: Arc<Rpc>,
    store: fn(&Limits) -> &Store,
    size: usize,
}

impl Held {
    pub(crate) fn set(&mut self, size: usize) {
        (self.store)(&self.rpc.limits).change(&self.rpc.owner, self.size, size);
        self.size = size;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

struct Counted {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a request, which counts the message that has not arrived completely: tonic keeps it.
pub(crate) struct Request {
    body: Incoming,
    rpc: Arc<Rpc>,
    partial: Partial,
    held: Held,
}

impl Request {
    pub(crate) fn new(body: Incoming, rpc: Arc<Rpc>) -> Self {
        let held = rpc.held(0);
        Self { body, rpc, partial: Partial::default(), held }
    }
}

impl Body for Request {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.partial.take(data);
            self.rpc.heard();
            let size = self.partial.have;
            self.held.set(size);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A message that arrives. Source: the Length-Prefixed-Message of gRPC over HTTP/2.
#[derive(Default)]
struct Partial {
    header: [u8; HEADER_BYTES],
    /// The bytes that have arrived, with the header; 0 between messages.
    have: usize,
}

impl Partial {
    fn take(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let taken = data.len().min(HEADER_BYTES.saturating_sub(self.have));
            if taken > 0 {
                self.header[self.have..][..taken].copy_from_slice(&data[..taken]);
                self.have += taken;
                data.advance(taken);
            }
            if self.have < HEADER_BYTES {
                return;
            }
            let [_, length @ ..] = self.header;
            let length = HEADER_BYTES + u32::from_be_bytes(length) as usize;
            let taken = data.len().min(length - self.have);
            self.have += taken;
            data.advance(taken);
            if self.have == length {
                self.have = 0;
            }
        }
    }
}

/// The body of an answer, which ends early if the RPC is to end.
pub(crate) struct Answer {
    body: tonic::body::Body,
    rpc: Arc<Rpc>,
    is_over: bool,
}

impl Answer {
    pub(crate) fn new(body: tonic::body::Body, rpc: Arc<Rpc>) -> Self {
        Self { body, rpc, is_over: false }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.rpc.end().gone();
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = self.rpc.end().poll(context) {
            self.is_over = true;
            // Cancels everything, and lets go of what was counted.
            self.body = tonic::body::Body::empty();
            let mut trailers = HeaderMap::new();
            return Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // Until it is written: the library keeps what the client does not read.
        let keep = |data: Bytes| if data.len() < SMALL_BYTES { data } else { self.rpc.keep(data) };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(keep))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_messages_are_counted_however_they_are_cut() {
        for length in [0_u8, 1, 7, 200] {
            let message = [vec![0, 0, 0, 0, length], vec![1; length.into()]].concat();
            let sent = [message.clone(), message.clone(), message].concat();
            for cut in 1..sent.len() {
                let mut partial = Partial::default();
                let mut arrived = 0;
                for part in sent.chunks(cut) {
                    partial.take(part);
                    arrived += part.len();
                    assert_eq!(partial.have, arrived % (HEADER_BYTES + usize::from(length)));
                }
            }
        }
    }

    #[tokio::test]
    async fn the_connection_with_most_open_calls_loses_one() {
        let rpcs = Store::new("open calls", 3);
        let limits = Arc::new(Limits { rpcs, ..Limits::default() });
        let (greedy, honest) = (limits.connected(None), limits.connected(None));
        let mut open = [greedy.open(), greedy.open(), greedy.open()];
        let served = honest.open();
        let is_ended =
            |rpc: &Arc<Rpc>| rpc.end().poll(&Context::from_waker(std::task::Waker::noop())).is_ready();
        assert!(!is_ended(&served));
        open.sort_by_key(is_ended);
        assert_eq!(open.each_ref().map(is_ended), [false, false, true]);
        assert_eq!(open[2].excess().await.code(), tonic::Code::ResourceExhausted);
        drop(open);
        assert_eq!((greedy.client.rpcs.load(Relaxed), honest.client.rpcs.load(Relaxed)), (0, 1));
        let again = [greedy.open(), greedy.open()];
        assert!(!again.iter().chain([&served]).any(is_ended));
    }

    #[test]
    fn a_full_worker_closes_a_connection_that_is_not_missed() {
        let limits = Arc::new(Limits::default());
        let add = |host: u8, rpcs, heard| {
            let added = limits.connected(Some([127, 0, 0, host].into()));
            added.client.rpcs.store(rpcs, Relaxed);
            added.client.last_heard.store(heard, Relaxed);
            added
        };
        let is_open = |one: &Connection| !one.client.close.is_cancelled();
        let other = add(2, 0, 0);
        let (waiting, old, young) = (add(1, 1, 1), add(1, 0, 10), add(1, 0, 11));
        let mut rest: Vec<_> = (4..MAX_CONNECTIONS).map(|_| add(1, 1, 30)).collect();
        for closed in [&old, &young, &waiting] {
            assert!(is_open(closed));
            rest.push(add(1, 1, 40));
            assert!(!is_open(closed));
            assert_eq!(limits.connections.lock().expect("a lock").len(), MAX_CONNECTIONS);
        }
        assert!(is_open(&other) && rest.iter().all(is_open));
        drop((other, waiting, old, young, rest));
        assert!(limits.connections.lock().expect("a lock").is_empty());
    }
}

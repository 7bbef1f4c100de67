//! What all clients together make the worker keep, within a limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Time in which an RPC notices that it is to end.
const NOTICED: Duration = Duration::from_secs(1);

/// A sum over all clients. Beyond the limit, the client that has most loses its largest part, whoever came last.
#[derive(Debug)]
pub(crate) struct Store {
    what: &'static str,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    clients: HashMap<u64, Holding>,
}

/// What one client has.
#[derive(Debug, Default)]
struct Holding {
    total: usize,
    /// By the id of the RPC.
    parts: HashMap<u64, (usize, Arc<End>)>,
}

/// Whose part it is.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) client: u64,
    pub(crate) rpc: u64,
    pub(crate) end: Arc<End>,
}

impl Store {
    pub(crate) fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, state: Mutex::default() }
    }

    /// Changes the part of an RPC; that of an ended one only becomes smaller.
    pub(crate) fn change(&self, of: &Owner, before: usize, now: usize) {
        if before == now {
            return;
        }
        let mut ended = Vec::new();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now > before {
            if of.end.is_set() {
                return;
            }
            state.add(of, now - before);
            while state.total > self.limit {
                let Some(end) = state.take_largest() else { break };
                ended.push(end);
            }
        } else {
            state.subtract(of, before - now);
        }
        drop(state);
        for end in ended {
            let (limit, what) = (self.limit, self.what);
            let text = format!("there are more than {limit} {what}, most of them of this client");
            end.set(Status::resource_exhausted(text));
        }
    }
}

impl State {
    fn add(&mut self, of: &Owner, size: usize) {
        self.total += size;
        let holding = self.clients.entry(of.client).or_default();
        holding.total += size;
        holding.parts.entry(of.rpc).or_insert_with(|| (0, Arc::clone(&of.end))).0 += size;
    }

    fn subtract(&mut self, of: &Owner, size: usize) {
        let Some(holding) = self.clients.get_mut(&of.client) else { return };
        let Some((part, _)) = holding.parts.get_mut(&of.rpc) else { return };
        // Less than the size if the part was taken, and the RPC has not noticed yet.
        let size = size.min(*part);
        *part -= size;
        if *part == 0 {
            holding.parts.remove(&of.rpc);
        }
        holding.total -= size;
        if holding.parts.is_empty() {
            self.clients.remove(&of.client);
        }
        self.total -= size;
    }

    fn take_largest(&mut self) -> Option<Arc<End>> {
        let (&client, most) = self.clients.iter().max_by_key(|(_, holding)| holding.total)?;
        let (&rpc, (size, end)) = most.parts.iter().max_by_key(|(_, (size, _))| *size)?;
        let (size, of) = (*size, Owner { client, rpc, end: Arc::clone(end) });
        self.subtract(&of, size);
        Some(of.end)
    }
}

/// Ends an RPC from outside, with a status.
#[derive(Debug, Default)]
pub(crate) struct End {
    state: Mutex<EndState>,
    /// Closes the connection.
    close: CancellationToken,
}

#[derive(Debug, Default)]
struct EndState {
    status: Option<Status>,
    waker: Option<Waker>,
    is_noticed: bool,
}

impl End {
    pub(crate) fn new(close: CancellationToken) -> Self {
        Self { close, ..Self::default() }
    }

    /// Ends the RPC, if it goes on. If its client does not read, it takes no notice, and the connection is closed.
    fn set(self: &Arc<Self>, status: Status) {
        let mut state = self.lock();
        state.status.get_or_insert(status);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Ok(runtime) = Handle::try_current() {
            let end = Arc::clone(self);
            runtime.spawn(async move {
                sleep(NOTICED).await;
                if !end.lock().is_noticed {
                    end.close.cancel();
                }
            });
        }
    }

    fn is_set(&self) -> bool {
        self.lock().status.is_some()
    }

    /// Waits for the end; for one task at a time.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Status> {
        let mut state = self.lock();
        if let Some(status) = &state.status {
            let status = status.clone();
            state.is_noticed = true;
            return Poll::Ready(status);
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// The RPC has ended by itself.
    pub(crate) fn gone(&self) {
        self.lock().is_noticed = true;
    }

    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(client: u64, rpc: u64) -> Owner {
        Owner { client, rpc, end: Arc::default() }
    }

    fn totals(store: &Store) -> (usize, usize) {
        let state = store.state.lock().expect("a lock");
        (state.total, state.clients.len())
    }

    #[test]
    fn the_largest_part_of_the_client_with_most_is_ended() {
        let store = Store::new("bytes of x", 100);
        let (first, second, other) = (owner(1, 1), owner(1, 2), owner(2, 3));
        store.change(&first, 0, 30);
        store.change(&second, 0, 31);
        store.change(&other, 0, 39);
        assert!(![&first, &second, &other].iter().any(|one| one.end.is_set()));
        store.change(&other, 39, 40);
        assert!(second.end.is_set() && !first.end.is_set() && !other.end.is_set());
        let Poll::Ready(status) = second.end.poll(&Context::from_waker(Waker::noop())) else {
            panic!("no end")
        };
        let text = "there are more than 100 bytes of x, most of them of this client";
        assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, text));
        // What it has had is gone, and it gets no more.
        store.change(&second, 31, 90);
        store.change(&second, 31, 0);
        assert_eq!(totals(&store), (70, 2));
        store.change(&first, 30, 0);
        store.change(&other, 40, 0);
        assert_eq!(totals(&store), (0, 0));
    }

    #[tokio::test]
    async fn a_connection_whose_call_takes_no_notice_of_its_end_is_closed() {
        let close = CancellationToken::new();
        Arc::new(End::new(close.clone())).set(Status::resource_exhausted(""));
        close.cancelled().await;
    }

    #[test]
    fn the_sum_keeps_its_limit_whatever_is_done() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for limit in 1..100 {
            let store = Store::new("things", limit);
            let mut parts: Vec<_> = (0..12).map(|rpc| (owner(rpc % 4, rpc), 0)).collect();
            for _ in 0..300 {
                let (of, size) = &mut parts[usize::try_from(next(12)).expect("small")];
                let now = usize::try_from(next(60)).expect("small");
                // One that has ended has nothing, and wants nothing.
                let now = if of.end.is_set() { 0 } else { now };
                store.change(of, *size, now);
                *size = now;
                assert!(totals(&store).0 <= limit);
            }
            let kept = parts.iter().filter(|(of, _)| !of.end.is_set()).map(|(_, size)| size).sum::<usize>();
            assert_eq!(totals(&store).0, kept);
            for (of, size) in parts {
                store.change(&of, size, 0);
            }
            assert_eq!(totals(&store), (0, 0));
        }
    }
}

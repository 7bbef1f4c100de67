//! The turns of connections: for room in which calls are evaluated, and for the time of the threads that serve all.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;

/// How long a connection is worked for before others have their turn.
pub(crate) const SLICE: Duration = Duration::from_millis(4);

/// Room for all connections. While there is none left, they take turns.
#[derive(Debug)]
pub(crate) struct Turns {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// By client; those that use room, or wait for it.
    shares: HashMap<u64, Share>,
    /// The clients that wait; the first one is the next.
    ring: VecDeque<u64>,
    last_id: u64,
}

/// What one client uses and waits for.
#[derive(Debug, Default)]
struct Share {
    used: usize,
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    weight: usize,
    give: oneshot::Sender<Turn>,
}

/// Room that is used until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    client: u64,
    weight: usize,
}

impl Turns {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Takes room for so much, if there is any and nobody of the client waits.
    pub(crate) fn try_take(self: &Arc<Self>, client: u64, weight: usize) -> Option<Turn> {
        let mut state = self.lock();
        let waits = state.shares.get(&client).is_some_and(|share| !share.waiting.is_empty());
        let taken = !waits && state.take(self.limit, client, weight);
        state.forget(client);
        taken.then(|| self.turn(client, weight))
    }

    /// Waits for room; who stops waiting gives up its place.
    pub(crate) async fn take(self: &Arc<Self>, client: u64, weight: usize) -> Turn {
        let mut waiting = {
            let mut state = self.lock();
            let (give, given) = oneshot::channel();
            state.last_id += 1;
            let id = state.last_id;
            let share = state.shares.entry(client).or_default();
            let is_first = share.waiting.is_empty();
            share.waiting.insert(id, Waiter { weight, give });
            if is_first {
                state.ring.push_back(client);
            }
            Waiting { turns: self, client, id, given }
        };
        self.go_on(|_| ());
        (&mut waiting.given).await.expect("a waiter is given a turn, or gives up")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(self: &Arc<Self>, client: u64, weight: usize) -> Turn {
        Turn { turns: Arc::clone(self), client, weight }
    }

    /// Changes the state, and lets those go on that there is room for then.
    fn go_on(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let ready = state.next(self.limit);
        drop(state);
        for (client, Waiter { weight, give }) in ready {
            // One that has just given up gives back its turn.
            drop(give.send(self.turn(client, weight)));
        }
    }
}

impl State {
    /// Uses the room, if it is there: a client has at most half of what the others leave, and one is always served.
    fn take(&mut self, limit: usize, client: u64, weight: usize) -> bool {
        let share = self.shares.entry(client).or_default();
        let room = ((limit + share.used).saturating_sub(self.used) / 2).saturating_sub(share.used);
        if self.used > 0 && weight > room {
            return false;
        }
        self.used += weight;
        share.used += weight;
        true
    }

    /// Takes the waiters that there is room for out of their places.
    fn next(&mut self, limit: usize) -> Vec<(u64, Waiter)> {
        let (mut ready, mut at) = (Vec::new(), 0);
        while let Some(&client) = self.ring.get(at) {
            let first = self.shares[&client].waiting.first_key_value();
            let (&id, weight) = first.map(|(id, waiter)| (id, waiter.weight)).expect("a client that waits");
            if !self.take(limit, client, weight) {
                at += 1;
                continue;
            }
            ready.extend(self.leave(client, id).map(|waiter| (client, waiter)));
        }
        ready
    }

    /// Takes a waiter out of its place; its client goes to the end of the ring, unless it has no other.
    fn leave(&mut self, client: u64, id: u64) -> Option<Waiter> {
        let waiting = &mut self.shares.get_mut(&client)?.waiting;
        let found = waiting.remove(&id)?;
        let waits = !waiting.is_empty();
        self.ring.retain(|other| *other != client);
        if waits {
            self.ring.push_back(client);
        }
        Some(found)
    }

    /// Forgets a client that has nothing.
    fn forget(&mut self, client: u64) {
        if self.shares.get(&client).is_some_and(|share| share.used == 0 && share.waiting.is_empty()) {
            self.shares.remove(&client);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (client, weight) = (self.client, self.weight);
        self.turns.go_on(|state| {
            state.used -= weight;
            if let Some(share) = state.shares.get_mut(&client) {
                share.used -= weight;
            }
            state.forget(client);
        });
    }
}

/// A place in the queue of a client.
struct Waiting<'a> {
    turns: &'a Arc<Turns>,
    client: u64,
    id: u64,
    given: oneshot::Receiver<Turn>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turns.go_on(|state| {
            state.leave(self.client, self.id);
            state.forget(self.client);
        });
    }
}

/// The time that the threads work for one connection, in slices: between two of them others have their turn.
#[derive(Debug, Default)]
pub(crate) struct Slices(Mutex<Slice>);

#[derive(Debug, Default)]
struct Slice {
    /// Since others have had their turn.
    spent: Duration,
    /// Whether a task waits until they have.
    is_over: bool,
    waiting: Vec<Waker>,
}

impl Slices {
    /// Works for the connection when it is its turn.
    pub(crate) fn work<T>(
        self: &Arc<Self>,
        context: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.is_over(context) {
            return Poll::Pending;
        }
        let begun = std::time::Instant::now();
        let worked = work(context);
        self.lock().spent += begun.elapsed();
        worked
    }

    fn is_over(self: &Arc<Self>, context: &Context<'_>) -> bool {
        let mut slice = self.lock();
        if slice.spent < SLICE {
            return false;
        }
        if slice.waiting.last().is_none_or(|last| !last.will_wake(context.waker())) {
            slice.waiting.push(context.waker().clone());
        }
        if !std::mem::replace(&mut slice.is_over, true) {
            tokio::spawn(Self::give_turn(Arc::clone(self)));
        }
        true
    }

    /// Lets others have as many turns as this connection has had slices.
    async fn give_turn(self: Arc<Self>) {
        loop {
            yield_now().await;
            let mut slice = self.lock();
            slice.spent = slice.spent.saturating_sub(SLICE);
            if slice.spent < SLICE {
                slice.is_over = false;
                let waiting = std::mem::take(&mut slice.waiting);
                drop(slice);
                waiting.into_iter().for_each(Waker::wake);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;

    type Taking = Pin<Box<dyn Future<Output = Turn>>>;

    /// Whether a call has its turn, or the place in which it waits for it.
    fn poll(taking: &mut Taking) -> Option<Turn> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_keep_their_limit_and_the_order() {
        for seed in 0..200_u64 {
            let mut random = seed;
            let mut below = |limit: usize| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(random >> 33).expect("small") % limit
            };
            let limit = 1 + below(50);
            let turns = Arc::new(Turns::new(limit));
            let clients = 1 + below(4);
            let mut running: Vec<Turn> = Vec::new();
            let mut waiting: HashMap<usize, VecDeque<Taking>> = HashMap::new();
            let mut left = 300;
            while left > 0 || !running.is_empty() {
                let of = below(clients);
                let places = waiting.entry(of).or_default();
                if left > 0 && below(3) > 0 {
                    left -= 1;
                    let (client, weight) = (of as u64, below(60));
                    if let Some(turn) = turns.try_take(client, weight) {
                        assert!(places.is_empty(), "seed {seed}: a call has overtaken others of its client");
                        running.push(turn);
                    } else {
                        let turns = Arc::clone(&turns);
                        let mut taking: Taking = Box::pin(async move { turns.take(client, weight).await });
                        assert!(poll(&mut taking).is_none(), "seed {seed}: there was no room");
                        places.push_back(taking);
                    }
                } else if below(8) == 0 {
                    // With its turn, if it has one by now.
                    places.pop_back();
                } else if !running.is_empty() {
                    running.swap_remove(below(running.len()));
                }
                for places in waiting.values_mut() {
                    while let Some(turn) = places.front_mut().and_then(poll) {
                        running.push(turn);
                        places.pop_front();
                    }
                    assert!(
                        !places.iter_mut().any(|taking| poll(taking).is_some()),
                        "seed {seed}: overtaken"
                    );
                }
                let state = turns.lock();
                let used: usize = running.iter().map(|turn| turn.weight).sum();
                assert_eq!(used, state.used, "seed {seed}");
                let count = running.iter().filter(|turn| turn.weight > 0).count();
                assert!(used <= limit || count == 1, "seed {seed}: {used} of {limit}");
                let waiting: usize = waiting.values().map(VecDeque::len).sum();
                assert!(used > 0 || waiting == 0, "seed {seed}: calls wait for nothing");
                assert_eq!(state.shares.values().map(|share| share.waiting.len()).sum::<usize>(), waiting);
            }
            let state = turns.lock();
            assert!(state.shares.is_empty() && state.ring.is_empty(), "seed {seed}: {state:?}");
        }
    }

    #[test]
    fn a_client_has_at_most_half_of_what_the_others_leave() {
        let turns = Arc::new(Turns::new(32));
        let greedy: Vec<_> = std::iter::from_fn(|| turns.try_take(1, 1)).collect();
        assert_eq!(greedy.len(), 16);
        let other: Vec<_> = std::iter::from_fn(|| turns.try_take(2, 1)).collect();
        assert_eq!(other.len(), 8);
        assert!(turns.try_take(3, 5).is_none());
        drop(greedy);
        assert!(turns.try_take(3, 12).is_some());
    }

    /// Each works for a slice, again and again: one for the connection with one stream, and fifty for the other.
    #[tokio::test]
    async fn a_connection_with_many_streams_has_no_more_turns_than_one_with_one() {
        let log = Arc::new(Mutex::new(String::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (name, streams) in [('m', 50), ('1', 1)] {
            let slices = Arc::new(Slices::default());
            for _ in 0..streams {
                let (slices, log) = (Arc::clone(&slices), Arc::clone(&log));
                tasks.spawn(async move {
                    for _ in 0..20 {
                        let work = |context: &mut Context<'_>| {
                            if slices.is_over(context) {
                                return Poll::Pending;
                            }
                            slices.lock().spent += SLICE;
                            log.lock().expect("a lock").push(name);
                            Poll::Ready(())
                        };
                        std::future::poll_fn(work).await;
                    }
                });
            }
        }
        tasks.join_all().await;
        let log = log.lock().expect("a lock").clone();
        let turns: Vec<_> = log.split('1').map(str::len).collect();
        assert_eq!(turns.len(), 21);
        assert!(turns[..20].iter().all(|others| *others <= 2), "{log}");
    }
}

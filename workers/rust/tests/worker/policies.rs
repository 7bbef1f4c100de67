//! Policies that answer at once, wait, or tell that they were dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use admission_gateway_worker::{Denied, Policy, Result, Review, Server, Serving, Value, json};
use tokio::sync::{Notify, Semaphore};

use crate::gateway::PATIENCE;

pub const LONG: u32 = 600_000;

pub fn allows(_: &mut Review) {}

pub fn denies(review: &mut Review) -> Result {
    Err(Denied::new(format!("not {}", review.name()?)).into())
}

pub fn labels(review: &mut Review) -> Result {
    review.object_mut()?["metadata"]["labels"]["seen"] = "yes".into();
    Ok(())
}

pub async fn forever(_: &mut Review) {
    std::future::pending::<()>().await;
}

pub fn request() -> Value {
    json!({"name": "web", "operation": "CREATE", "object": {"metadata": {"labels": {"a": "b"}}}})
}

pub fn policies() -> Server {
    Server::new()
        .policy("allows", "", allows)
        .policy("denies", "", denies)
        .mutating_policy("labels", "", labels)
        .policy("tries-to-label", "", labels)
        .policy("forever", "", forever)
}

pub async fn serve(server: Server) -> Serving {
    server.listen("127.0.0.1:0").start().await.expect("it starts")
}

/// Counts the futures that were dropped before they ended.
pub struct Dropped(Arc<(AtomicUsize, Notify)>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        self.0.1.notify_one();
    }
}

pub type Count = Arc<(AtomicUsize, Notify)>;

pub fn watched(count: &Count) -> Server {
    let count = count.clone();
    policies().register(Policy::boxed("watched", "", move |_| {
        let dropped = Dropped(count.clone());
        Box::pin(async move {
            let _dropped = dropped;
            std::future::pending().await
        })
    }))
}

pub async fn wait_for(count: &Count, wanted: usize) {
    let reached = async {
        while count.0.load(Ordering::SeqCst) < wanted {
            count.1.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("dropped in time");
    assert_eq!(count.0.load(Ordering::SeqCst), wanted);
}

/// A policy that waits for a permit.
pub fn waits(go: &Arc<Semaphore>) -> Policy {
    let go = go.clone();
    Policy::boxed("waits", "", move |review| {
        let go = go.clone();
        Box::pin(async move {
            go.acquire().await?.forget();
            review.warn("waited");
            Ok(())
        })
    })
}

//! Two policies that go wrong on purpose, to see what failurePolicy and timeoutSeconds do.

use std::time::Duration;

use admission_gateway_worker::{PolicyError, Result, Review};

/// Twice the longest timeout that a webhook can have.
const SLEEP: Duration = Duration::from_secs(60);

pub async fn sleeps(_: &mut Review) {
    tokio::time::sleep(SLEEP).await;
}

pub fn fails(review: &mut Review) -> Result {
    Err(PolicyError::failed(format!("this policy always fails (review {})", review.uid()?)))
}

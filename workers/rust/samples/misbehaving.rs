//! Two faulty policies, to demonstrate failurePolicy and timeoutSeconds.

use std::time::Duration;

use admission_gateway_worker::{PolicyError, Result, Review};

/// Twice the longest timeout of a webhook.
const SLEEP: Duration = Duration::from_secs(60);

pub async fn sleeps(_: &mut Review) {
    tokio::time::sleep(SLEEP).await;
}

pub fn fails(review: &mut Review) -> Result {
    Err(PolicyError::failed(format!("this policy always fails (review {})", review.uid()?)))
}

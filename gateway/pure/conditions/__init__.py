"""matchConditions of webhooks: evaluation for a request, and the authorizer's decisions for it."""

"""The cluster that the gateway serves: its namespaces, read and watched, and objects applied to it."""

"""Previews of manifests: what admission does with them before they are applied."""

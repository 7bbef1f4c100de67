"""A gRPC channel to one address, with the settings that admission needs.

Source: gRPC core's channel arguments (grpc/impl/channel_arg_names.h) and the keepalive guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from gateway.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.model import WorkerTls

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""gRPC's own receive limit of 4 MiB is too small for the update of a large object, which carries it twice."""

_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A dead peer is noticed within 40 s; servers must allow a ping every 30 s without data.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A worker that comes back is used again at once, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A retry is the pool's decision: it knows the deadline and the webhook's sideEffects.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Each endpoint is to have a connection of its own, also where two pools name the same address.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(address: str, tls: WorkerTls | None, server_name: str | None) -> grpc.aio.Channel:
    """Return a channel to *address*, a gRPC name that stands for one address.

    *server_name* is what the worker's certificate must be for; None: what the address says.

    Raises:
        ConfigError: a file that *tls* names cannot be read.
    """
    options = list(_OPTIONS)
    if tls is None:
        # What an HTTP/2 server logs as the host; the default would show a percent-encoded socket path.
        options.append(("grpc.default_authority", server_name or "localhost"))
        return grpc.aio.insecure_channel(address, options=options)
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_content(tls.ca_file),
        private_key=_content(tls.key_file),
        certificate_chain=_content(tls.cert_file),
    )
    return grpc.aio.secure_channel(address, credentials, options=options)


def _content(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError([Problem(str(file), "", f"cannot be read: {error.strerror}")]) from None

//! A compiled module, and calls of it: each in an instance of its own.
//!
//! Kubewarden makes an instance for each evaluation, too, so nothing that a policy keeps reaches another request, and an
//! evaluation that was interrupted leaves nothing behind.
//!
//! Source: github.com/kubewarden/policy-evaluator src/runtimes/{wapc,wasi_cli}.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use wasmtime::{InstancePre, Linker, Module, Store, Trap, TypedFunc};

use crate::engine::{Bounds, Clocked};
use crate::host::{Exit, Host, Rights, TooLate};
use crate::{wapc, wasi};

/// The protocol of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A waPC guest.
    Wapc,
    /// A program.
    Wasi,
}

/// The exports that waPC hosts call when they have made an instance.
const BEGINNINGS: [&str; 3] = ["_start", "_initialize", "wapc_init"];

/// A module that can be called.
pub struct Guest {
    clock: Clocked,
    prepared: InstancePre<Host>,
    protocol: Protocol,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The evaluation took longer than it may.
    TimedOut,
    /// The text has the reason.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => {
                f.write_str("Policy execution interrupted because it exceeded the allowed execution time")
            }
            Self::Broken(text) => f.write_str(text),
        }
    }
}

impl Guest {
    /// Resolves the imports of a module; the error names one that there is not.
    pub fn new(clock: &Clocked, module: &Module, protocol: Protocol) -> Result<Self, String> {
        let mut linker = Linker::new(&clock.engine);
        linker.allow_shadowing(true);
        let linked = wasi::link_rest(&mut linker, module).and_then(|()| wasi::link(&mut linker));
        let linked = linked.and_then(|()| wapc::link(&mut linker));
        let prepared = linked.and_then(|()| linker.instantiate_pre(module));
        let prepared = prepared.map_err(|error| format!("{error:#}"))?;
        let wanted = match protocol {
            Protocol::Wapc => "__guest_call",
            Protocol::Wasi => "_start",
        };
        if module.get_export(wanted).is_none() {
            return Err(format!("the module exports no {wanted}, so that it is none for this executionMode"));
        }
        Ok(Self { clock: clock.clone(), prepared, protocol })
    }

    /// The protocol that it was made for.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Calls `validate`, `validate_settings` or `protocol_version`; returns what the guest answers.
    pub fn call(
        &self,
        operation: &str,
        payload: Vec<u8>,
        rights: &Arc<Rights>,
        bounds: &Bounds,
        deadline: Instant,
    ) -> Result<Vec<u8>, Failure> {
        let _running = self.clock.begin();
        let mut store = Store::new(&self.clock.engine, Host::new(bounds.limits(), rights, deadline));
        store.limiter(|host| &mut host.limits);
        store.set_epoch_deadline(Clocked::epochs(deadline));
        let answer = match self.protocol {
            Protocol::Wapc => self.wapc(&mut store, operation, payload),
            Protocol::Wasi => self.wasi(&mut store, operation, payload),
        };
        answer.map_err(|error| {
            let is_late = error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) || error.is::<TooLate>();
            if is_late {
                return Failure::TimedOut;
            }
            // The last cause: those before it tell of addresses in the module.
            Failure::Broken(format!("the module failed: {}", error.root_cause()))
        })
    }

    fn wapc(&self, store: &mut Store<Host>, operation: &str, payload: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
        let instance = self.prepared.instantiate(&mut *store)?;
        for name in BEGINNINGS {
            let Ok(begin) = instance.get_typed_func::<(), ()>(&mut *store, name) else { continue };
            match begin.call(&mut *store, ()) {
                Err(error) if error.downcast_ref::<Exit>().is_none_or(|Exit(status)| *status != 0) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        let call: TypedFunc<(i32, i32), i32> = instance.get_typed_func(&mut *store, "__guest_call")?;
        let lengths = (i32::try_from(operation.len())?, i32::try_from(payload.len())?);
        let exchange = &mut store.data_mut().wapc;
        (exchange.operation, exchange.payload) = (operation.to_owned(), payload);
        let succeeded = call.call(&mut *store, lengths)? == 1;
        let exchange = &mut store.data_mut().wapc;
        match (succeeded, exchange.response.take(), exchange.error.take()) {
            (true, Some(response), _) => Ok(response),
            (true, None, _) => {
                Err(wasmtime::Error::msg(format!("{operation} was called, and gave no response")))
            }
            (false, _, Some(error)) => Err(wasmtime::Error::msg(format!(
                "{operation}: {}",
                String::from_utf8_lossy(&error).chars().take(1000).collect::<String>()
            ))),
            (false, _, None) => Err(wasmtime::Error::msg(format!("{operation} failed, without a reason"))),
        }
    }

    fn wasi(&self, store: &mut Store<Host>, operation: &str, payload: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
        let streams = &mut store.data_mut().wasi;
        streams.arguments = vec!["policy.wasm".to_owned(), operation.replace('_', "-")];
        streams.input = payload;
        let instance = self.prepared.instantiate(&mut *store)?;
        let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
        match start.call(&mut *store, ()) {
            Err(error) if error.downcast_ref::<Exit>().is_none_or(|Exit(status)| *status != 0) => {
                let line = std::mem::take(&mut store.data_mut().wasi.line);
                if !line.is_empty() {
                    store.data_mut().log("INFO", &String::from_utf8_lossy(&line));
                }
                Err(error)
            }
            _ => Ok(std::mem::take(&mut store.data_mut().wasi.output)),
        }
    }
}

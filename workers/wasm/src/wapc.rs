//! The imports of waPC guests.
//!
//! Source: wapc.io, the protocol; github.com/wapc/wasmtime-provider src/callbacks.rs.

use wasmtime::{Caller, Linker};

use crate::host::{Host, read, read_text, write};

const MODULE: &str = "wapc";

/// Adds the nine functions.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        "__guest_request",
        |mut caller: Caller<'_, Host>, operation: i32, payload: i32| {
            let (name, text) = (
                std::mem::take(&mut caller.data_mut().wapc.operation),
                std::mem::take(&mut caller.data_mut().wapc.payload),
            );
            write(&mut caller, "__guest_request", operation, name.as_bytes())?;
            write(&mut caller, "__guest_request", payload, &text)?;
            // A guest may ask twice.
            let exchange = &mut caller.data_mut().wapc;
            (exchange.operation, exchange.payload) = (name, text);
            Ok(())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "__guest_response",
        |mut caller: Caller<'_, Host>, pointer: i32, length: i32| {
            let found = read(&mut caller, "__guest_response", pointer, length)?;
            caller.data_mut().wapc.response = Some(found);
            Ok(())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "__guest_error",
        |mut caller: Caller<'_, Host>, pointer: i32, length: i32| {
            let found = read(&mut caller, "__guest_error", pointer, length)?;
            caller.data_mut().wapc.error = Some(found);
            Ok(())
        },
    )?;
    linker.func_wrap(MODULE, "__host_call", host_call)?;
    linker.func_wrap(MODULE, "__host_response", |mut caller: Caller<'_, Host>, pointer: i32| {
        let found = std::mem::take(&mut caller.data_mut().wapc.host_response);
        write(&mut caller, "__host_response", pointer, &found)?;
        caller.data_mut().wapc.host_response = found;
        Ok(())
    })?;
    linker.func_wrap(MODULE, "__host_response_len", |caller: Caller<'_, Host>| {
        i32::try_from(caller.data().wapc.host_response.len()).unwrap_or(i32::MAX)
    })?;
    linker.func_wrap(MODULE, "__host_error", |mut caller: Caller<'_, Host>, pointer: i32| {
        let found = std::mem::take(&mut caller.data_mut().wapc.host_error);
        write(&mut caller, "__host_error", pointer, &found)?;
        caller.data_mut().wapc.host_error = found;
        Ok(())
    })?;
    linker.func_wrap(MODULE, "__host_error_len", |caller: Caller<'_, Host>| {
        i32::try_from(caller.data().wapc.host_error.len()).unwrap_or(i32::MAX)
    })?;
    linker.func_wrap(
        MODULE,
        "__console_log",
        |mut caller: Caller<'_, Host>, pointer: i32, length: i32| {
            let text = read_text(&mut caller, "__console_log", pointer, length)?;
            caller.data_mut().log("INFO", &text);
            Ok(())
        },
    )?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the protocol's")]
fn host_call(
    mut caller: Caller<'_, Host>,
    binding: i32,
    binding_length: i32,
    namespace: i32,
    namespace_length: i32,
    operation: i32,
    operation_length: i32,
    payload: i32,
    payload_length: i32,
) -> wasmtime::Result<i32> {
    let binding = read_text(&mut caller, "__host_call", binding, binding_length)?;
    let namespace = read_text(&mut caller, "__host_call", namespace, namespace_length)?;
    let operation = read_text(&mut caller, "__host_call", operation, operation_length)?;
    let payload = read(&mut caller, "__host_call", payload, payload_length)?;
    let host = caller.data_mut();
    let (response, error, succeeded) = match host.call(&binding, &namespace, &operation, &payload) {
        Ok(response) => (response, Vec::new(), 1),
        Err(problem) => (Vec::new(), problem.into_bytes(), 0),
    };
    (host.wapc.host_response, host.wapc.host_error) = (response, error);
    Ok(succeeded)
}

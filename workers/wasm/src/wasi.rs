//! As much of WASI preview 1 as programs need that read their input and write their answer.
//!
//! There are no files, no environment and no network: every other function answers ENOSYS.
//!
//! Source: github.com/WebAssembly/WASI legacy/preview1/docs.md.

use std::fs::File;
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime::{Caller, ExternType, Linker, Module, Val, ValType};

use crate::host::{Exit, Host, MAX_BYTES, TooLate, read, read_text, write};

pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// Modules under which a guest finds the host call.
pub(crate) const HOSTS: [&str; 2] = ["host", "kubewarden:javy/host"];

const SUCCESS: i32 = 0;
const BADF: i32 = 8;
const INVAL: i32 = 28;
const NOSYS: i32 = 52;
const SPIPE: i32 = 70;

/// Parts of one read or write, and subscriptions of one poll.
const MAX_PARTS: i32 = 1024;

/// An unfinished line of stderr is logged at this length.
const MAX_LINE_BYTES: usize = 1024;

/// Bytes that one call asks random ones of.
const MAX_RANDOM_BYTES: i32 = 1 << 20;

type Answer = wasmtime::Result<i32>;

/// Adds the functions, and the host call of WASI guests.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        "args_sizes_get",
        |mut caller: Caller<'_, Host>, count: i32, size: i32| -> Answer {
            let arguments = &caller.data().wasi.arguments;
            let (number, bytes) = (arguments.len(), arguments.iter().map(|one| one.len() + 1).sum());
            put(&mut caller, count, number)?;
            put(&mut caller, size, bytes)?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "args_get",
        |mut caller: Caller<'_, Host>, pointers: i32, buffer: i32| -> Answer {
            let arguments = caller.data().wasi.arguments.clone();
            let mut place = buffer;
            for (index, argument) in (0_i32..).zip(arguments) {
                put(&mut caller, pointers.wrapping_add(index * 4), place.cast_unsigned() as usize)?;
                let text = [argument.as_bytes(), b"\0"].concat();
                write(&mut caller, "args_get", place, &text)?;
                place = place.wrapping_add(i32::try_from(text.len())?);
            }
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "environ_sizes_get",
        |mut caller: Caller<'_, Host>, count: i32, size: i32| -> Answer {
            put(&mut caller, count, 0)?;
            put(&mut caller, size, 0)?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(MODULE, "environ_get", |_: Caller<'_, Host>, _: i32, _: i32| SUCCESS)?;
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |mut caller: Caller<'_, Host>, id: i32, _: i64, place: i32| -> Answer {
            let Some(now) = now(id) else { return Ok(INVAL) };
            write(&mut caller, "clock_time_get", place, &now.to_le_bytes())?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "clock_res_get",
        |mut caller: Caller<'_, Host>, _: i32, place: i32| -> Answer {
            write(&mut caller, "clock_res_get", place, &1000_u64.to_le_bytes())?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "random_get",
        |mut caller: Caller<'_, Host>, place: i32, length: i32| -> Answer {
            if !(0..=MAX_RANDOM_BYTES).contains(&length) {
                return Ok(INVAL);
            }
            let mut bytes = vec![0; length.cast_unsigned() as usize];
            File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes))?;
            write(&mut caller, "random_get", place, &bytes)?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(MODULE, "sched_yield", |_: Caller<'_, Host>| SUCCESS)?;
    linker.func_wrap(MODULE, "proc_exit", |_: Caller<'_, Host>, status: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exit(status)))
    })?;
    link_descriptors(linker)?;
    linker.func_wrap(MODULE, "poll_oneoff", poll)?;
    for module in HOSTS {
        linker.func_wrap(module, "call", host_call)?;
    }
    Ok(())
}

fn link_descriptors(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "fd_read", fd_read)?;
    linker.func_wrap(MODULE, "fd_write", fd_write)?;
    linker.func_wrap(MODULE, "fd_close", |_: Caller<'_, Host>, descriptor: i32| known(descriptor))?;
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |_: Caller<'_, Host>, descriptor: i32, _: i32| {
        known(descriptor)
    })?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |_: Caller<'_, Host>, descriptor: i32, _: i64, _: i32, _: i32| {
            if known(descriptor) == SUCCESS { SPIPE } else { BADF }
        },
    )?;
    linker.func_wrap(MODULE, "fd_prestat_get", |_: Caller<'_, Host>, _: i32, _: i32| BADF)?;
    linker.func_wrap(MODULE, "fd_prestat_dir_name", |_: Caller<'_, Host>, _: i32, _: i32, _: i32| BADF)?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_get",
        |mut caller: Caller<'_, Host>, descriptor: i32, place: i32| -> Answer {
            if known(descriptor) != SUCCESS {
                return Ok(BADF);
            }
            // A character device, without flags, with the rights to read or to write.
            let mut stat = [0; 24];
            stat[0] = 2;
            stat[8] = if descriptor == 0 { 2 } else { 64 };
            write(&mut caller, "fd_fdstat_get", place, &stat)?;
            Ok(SUCCESS)
        },
    )?;
    Ok(())
}

/// Adds all that `module` imports of WASI as functions that there are not; [`link`] then replaces those that there are.
pub(crate) fn link_rest(linker: &mut Linker<Host>, module: &Module) -> wasmtime::Result<()> {
    for import in module.imports().filter(|import| import.module() == MODULE) {
        let ExternType::Func(kind) = import.ty() else { continue };
        if kind.results().len() == 1 && kind.results().all(|one| matches!(one, ValType::I32)) {
            linker.func_new(MODULE, import.name(), kind, |_, _, results| {
                results[0] = Val::I32(NOSYS);
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn known(descriptor: i32) -> i32 {
    if (0..=2).contains(&descriptor) { SUCCESS } else { BADF }
}

fn put(caller: &mut Caller<'_, Host>, place: i32, number: usize) -> wasmtime::Result<()> {
    write(caller, "a result of WASI", place, &u32::try_from(number)?.to_le_bytes())
}

/// Nanoseconds of a clock.
fn now(id: i32) -> Option<u64> {
    static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let since = match id {
        0 => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        1 => BEGIN.elapsed(),
        _ => return None,
    };
    u64::try_from(since.as_nanos()).ok()
}

/// Pointers and lengths of the parts of a read or write; `None`: too many.
fn parts(caller: &mut Caller<'_, Host>, list: i32, count: i32) -> wasmtime::Result<Option<Vec<(i32, i32)>>> {
    if !(0..=MAX_PARTS).contains(&count) {
        return Ok(None);
    }
    let bytes = read(caller, "the parts of a read or write", list, count * 8)?;
    let numbers: Vec<_> =
        bytes.chunks_exact(4).map(|four| i32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    Ok(Some(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()))
}

fn fd_read(mut caller: Caller<'_, Host>, descriptor: i32, list: i32, count: i32, place: i32) -> Answer {
    if descriptor != 0 {
        return Ok(BADF);
    }
    let Some(parts) = parts(&mut caller, list, count)? else { return Ok(INVAL) };
    let mut total = 0;
    for (pointer, length) in parts {
        let streams = &caller.data().wasi;
        let left = &streams.input[streams.read..];
        let part = left[..left.len().min(length.cast_unsigned() as usize)].to_vec();
        write(&mut caller, "fd_read", pointer, &part)?;
        caller.data_mut().wasi.read += part.len();
        total += part.len();
    }
    put(&mut caller, place, total)?;
    Ok(SUCCESS)
}

fn fd_write(mut caller: Caller<'_, Host>, descriptor: i32, list: i32, count: i32, place: i32) -> Answer {
    if !(1..=2).contains(&descriptor) {
        return Ok(BADF);
    }
    let Some(parts) = parts(&mut caller, list, count)? else { return Ok(INVAL) };
    let mut total = 0;
    for (pointer, length) in parts {
        let part = read(&mut caller, "fd_write", pointer, length)?;
        total += part.len();
        if descriptor == 1 {
            let output = &mut caller.data_mut().wasi.output;
            if output.len() + part.len() > MAX_BYTES {
                return Err(wasmtime::Error::msg(format!("the module wrote more than {MAX_BYTES} bytes")));
            }
            output.extend(part);
        } else {
            complain(caller.data_mut(), &part);
        }
    }
    put(&mut caller, place, total)?;
    Ok(SUCCESS)
}

/// Logs the lines that a guest writes to stderr.
fn complain(host: &mut Host, part: &[u8]) {
    for byte in part {
        if *byte == b'\n' || host.wasi.line.len() == MAX_LINE_BYTES {
            let line = std::mem::take(&mut host.wasi.line);
            host.log("INFO", &String::from_utf8_lossy(&line));
        }
        if *byte != b'\n' {
            host.wasi.line.push(*byte);
        }
    }
}

/// Waits for the first of the clocks, and says that everything else is ready.
fn poll(mut caller: Caller<'_, Host>, list: i32, events: i32, count: i32, place: i32) -> Answer {
    if !(1..=MAX_PARTS).contains(&count) {
        return Ok(INVAL);
    }
    let bytes = read(&mut caller, "poll_oneoff", list, count * 48)?;
    let number = |one: &[u8], at: usize| u64::from_le_bytes(one[at..at + 8].try_into().expect("eight bytes"));
    let wait_of = |one: &[u8]| match one[8] {
        0 => {
            let id = i32::from_le_bytes(one[16..20].try_into().expect("four bytes"));
            let (time, is_absolute) = (number(one, 24), one[40] & 1 == 1);
            if is_absolute { time.saturating_sub(now(id).unwrap_or(time)) } else { time }
        }
        _ => 0,
    };
    let waits: Vec<_> = bytes.chunks_exact(48).map(wait_of).collect();
    let first = waits.iter().copied().min().unwrap_or(0);
    let left = caller.data().deadline.saturating_duration_since(Instant::now());
    if Duration::from_nanos(first) > left {
        thread::sleep(left);
        return Err(wasmtime::Error::new(TooLate));
    }
    thread::sleep(Duration::from_nanos(first));
    let mut number_of_events = 0;
    for (subscription, _) in bytes.chunks_exact(48).zip(&waits).filter(|(_, wait)| **wait <= first) {
        let mut event = [0; 32];
        event[..8].copy_from_slice(&subscription[..8]);
        event[10] = subscription[8];
        write(&mut caller, "poll_oneoff", events.wrapping_add(number_of_events * 32), &event)?;
        number_of_events += 1;
    }
    put(&mut caller, place, number_of_events.cast_unsigned() as usize)?;
    Ok(SUCCESS)
}

/// The host call of WASI guests: its answer, or its error, is what they read next.
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
) -> Answer {
    let binding = read_text(&mut caller, "call", binding, binding_length)?;
    let namespace = read_text(&mut caller, "call", namespace, namespace_length)?;
    let operation = read_text(&mut caller, "call", operation, operation_length)?;
    let payload = read(&mut caller, "call", payload, payload_length)?;
    let host = caller.data_mut();
    let (answer, status) = match host.call(&binding, &namespace, &operation, &payload) {
        Ok(answer) => (answer, 0),
        Err(problem) => (problem.into_bytes(), 1),
    };
    let streams = &mut host.wasi;
    streams.input.drain(..std::mem::take(&mut streams.read));
    streams.input.extend(answer);
    Ok(status)
}

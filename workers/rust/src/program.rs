//! The program of a worker: signals and exit status. Errors are one line on stderr.

use std::process::exit;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::log::{log, note_panics, say};
use crate::metrics;
use crate::options::{Instead, Options, parse};
use crate::server::{Prepare, Server};
use crate::serving::StartError;

/// For objects nested as deep as the gateway takes them, which are gone through level by level.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// How long to wait for threads of policies that came to their end only now.
const THREADS: Duration = Duration::from_millis(10);

pub(crate) fn main(mut server: Server) -> ! {
    let arguments = std::env::args_os().map(|text| text.to_string_lossy().into_owned());
    let options = match parse(arguments, &mut server.flags) {
        Ok(options) => options,
        Err(Instead::Help(text)) => {
            print!("{text}");
            exit(0)
        }
        Err(Instead::BadUsage(text)) => {
            say(&text);
            exit(2)
        }
    };
    note_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build()
        .expect("threads can be started");
    let status = match runtime.block_on(serve(server, options)) {
        Ok(()) => 0,
        Err(problem) => {
            problem.to_string().lines().for_each(say);
            1
        }
    };
    runtime.shutdown_timeout(THREADS);
    exit(status)
}

async fn serve(mut server: Server, options: Options) -> Result<(), StartError> {
    let mut signals = Signals::new().map_err(|error| StartError::new(error.to_string()))?;
    if let Some(Prepare(prepare)) = server.prepare.take() {
        tokio::select! {
            prepared = prepare() => prepared?,
            number = signals.next() => exit(128 + number),
        }
    }
    let grace = options.grace;
    let serving = server.told(options).start().await?;
    if let Some(address) = serving.metrics_address() {
        say(&format!("metrics on http://{address}{}", metrics::PATH));
    }
    let count = serving.count();
    say(&format!("serving {count} policies on {}", serving.addresses().join(", ")));
    signals.next().await;
    let stopped = serving.stop(grace);
    let busy = tokio::select! {
        busy = stopped => busy,
        number = signals.next() => exit(128 + number),
    };
    if busy > 0 {
        log("WARNING", &format!("{busy} policies have not come back from their threads; leaving them"));
    }
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for SIGTERM or SIGINT; returns its number.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        }
    }
}

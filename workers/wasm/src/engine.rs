//! The engine that compiles and runs all modules, and the bounds of one evaluation.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use wasmtime::{Config, Engine, StoreLimits, StoreLimitsBuilder};

/// How exactly an evaluation ends at its time: the interval of the engine's epochs.
const TICK: Duration = Duration::from_millis(10);

/// A guest's own stack beyond what it keeps in its memory. Half of it is wasmtime's default.
const STACK_BYTES: usize = 1 << 20;

/// Entries of a table: functions that are called by pointer. The largest public policies have some 10,000.
const TABLE_ELEMENTS: usize = 200_000;

/// The bounds of one evaluation.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Of the linear memory of an instance.
    pub memory_bytes: usize,
    /// Of a policy without timeoutEvalSeconds.
    pub timeout: Duration,
}

impl Default for Bounds {
    /// Kubewarden's own time limit, and more memory than its policies need: one in Go takes some 10 MiB.
    fn default() -> Self {
        Self { memory_bytes: 128 << 20, timeout: Duration::from_secs(2) }
    }
}

impl Bounds {
    pub(crate) fn limits(&self) -> StoreLimits {
        StoreLimitsBuilder::new()
            .memory_size(self.memory_bytes)
            .table_elements(TABLE_ELEMENTS)
            .instances(1)
            .memories(1)
            .tables(8)
            .build()
    }
}

/// The engine, whose epochs go on while something is evaluated.
#[derive(Clone, Debug)]
pub struct Clocked {
    /// Of wasmtime.
    pub engine: Engine,
    running: Arc<Running>,
}

#[derive(Debug, Default)]
struct Running {
    count: Mutex<usize>,
    some: Condvar,
}

impl Running {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An evaluation; dropped at its end.
pub(crate) struct Evaluation<'a>(&'a Running);

impl Drop for Evaluation<'_> {
    fn drop(&mut self) {
        *self.0.count() -= 1;
    }
}

impl Clocked {
    /// Makes the engine and its clock, a thread that sleeps while nothing is evaluated.
    pub fn new() -> Result<Self, String> {
        let mut config = Config::new();
        config.epoch_interruption(true).max_wasm_stack(STACK_BYTES);
        let engine = Engine::new(&config).map_err(|error| format!("wasmtime: {error:#}"))?;
        let running = Arc::<Running>::default();
        let (weak, counted) = (engine.weak(), Arc::clone(&running));
        let clock = move || {
            loop {
                let mut count = counted.count();
                while *count == 0 {
                    count = counted.some.wait(count).unwrap_or_else(PoisonError::into_inner);
                }
                drop(count);
                thread::sleep(TICK);
                let Some(engine) = weak.upgrade() else { return };
                engine.increment_epoch();
            }
        };
        thread::Builder::new().name("epochs".to_owned()).spawn(clock).map_err(|error| error.to_string())?;
        Ok(Self { engine, running })
    }

    pub(crate) fn begin(&self) -> Evaluation<'_> {
        *self.running.count() += 1;
        self.running.some.notify_one();
        Evaluation(&self.running)
    }

    /// The epochs until `deadline`, rounded up.
    pub(crate) fn epochs(deadline: Instant) -> u64 {
        let left = deadline.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u64::MAX >> 1) + 1
    }
}

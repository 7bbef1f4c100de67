//! The program: its options, and the folders that it follows.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission_gateway_wasm::engine::Bounds;
use admission_gateway_wasm::loading::{Loader, Sources};
use admission_gateway_worker::Server;

/// How often the folders are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

fn main() {
    let given = Arc::new(Mutex::new((Sources::default(), Bounds::default())));
    let set = |set: fn(&mut Sources, &mut Bounds, String) -> Result<(), String>| {
        let given = Arc::clone(&given);
        move |value| {
            let (sources, bounds) = &mut *given.lock().unwrap_or_else(PoisonError::into_inner);
            set(sources, bounds, value)
        }
    };
    let server = Server::new();
    let replacer = server.replacer();
    let server = server
        .flag(
            "--policies",
            "DIR",
            "folder of the documents, repeatable",
            set(|sources, _, value| {
                sources.policies.push(folder(value)?);
                Ok(())
            }),
        )
        .flag(
            "--modules",
            "DIR",
            "further folder of modules, such as kwctl's store; repeatable",
            set(|sources, _, value| {
                sources.modules.push(folder(value)?);
                Ok(())
            }),
        )
        .flag(
            "--memory",
            "MIB",
            "memory of one evaluation; default 128",
            set(|_, bounds, value| {
                let found = value.parse::<usize>().ok().filter(|mib| (1..=4096).contains(mib));
                let expected = || format!("'{value}' is not a number of MiB from 1 to 4096");
                bounds.memory_bytes = found.ok_or_else(expected)? << 20;
                Ok(())
            }),
        )
        .flag(
            "--eval-timeout",
            "SECONDS",
            "longest evaluation of policies without timeoutEvalSeconds; default 2",
            set(|_, bounds, value| {
                let found = value.parse::<f64>().ok().filter(|seconds| (0.01..=30.0).contains(seconds));
                let seconds = found.ok_or(format!("'{value}' is not a number of seconds up to 30"))?;
                bounds.timeout = Duration::from_secs_f64(seconds);
                Ok(())
            }),
        );
    let prepared = Arc::clone(&given);
    server
        .before_serving(move || async move {
            let (sources, bounds) = prepared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if sources.policies.is_empty() {
                return Err("--policies is required: a folder with documents of Kubewarden".to_owned());
            }
            let mut loader = Loader::new(sources, bounds)?;
            let loading = tokio::task::spawn_blocking(move || {
                let loaded = loader.load();
                (loader, loaded)
            });
            let (loader, loaded) = loading.await.map_err(|gone| gone.to_string())?;
            let policies = loaded.map_err(|problems| problems.join("\n"))?;
            replacer.replace(policies).map_err(|problem| problem.to_string())?;
            tokio::task::spawn_blocking(move || {
                loader.follow(INTERVAL, |policies| {
                    replacer.replace(policies).map_err(|problem| vec![problem.to_string()])
                })
            });
            Ok(())
        })
        .main()
}

fn folder(value: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(&value);
    if path.is_dir() { Ok(path) } else { Err(format!("'{value}' is not a folder")) }
}

//! The program: its options, and the folders or the cluster that it follows.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission_gateway_wasm::cluster::Cluster;
use admission_gateway_wasm::connection::Connection;
use admission_gateway_wasm::engine::Bounds;
use admission_gateway_wasm::following::Following;
use admission_gateway_wasm::loading::{Loader, Sources};
use admission_gateway_worker::Server;

/// How often the folders are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
struct Given {
    sources: Sources,
    bounds: Bounds,
    cluster: bool,
    kubeconfig: Option<PathBuf>,
}

fn main() {
    let given = Arc::new(Mutex::new(Given::default()));
    let set = |set: fn(&mut Given, String) -> Result<(), String>| {
        let given = Arc::clone(&given);
        move |value| set(&mut given.lock().unwrap_or_else(PoisonError::into_inner), value)
    };
    let server = Server::new();
    let replacer = server.replacer();
    let server = server
        .flag(
            "--policies",
            "DIR",
            "folder of the documents, repeatable",
            set(|given, value| {
                given.sources.policies.push(folder(value)?);
                Ok(())
            }),
        )
        .flag(
            "--modules",
            "DIR",
            "further folder of modules, such as kwctl's store; repeatable",
            set(|given, value| {
                given.sources.modules.push(folder(value)?);
                Ok(())
            }),
        )
        .flag(
            "--cluster",
            "",
            "read the cluster: what policies ask for, and without --policies the policies themselves",
            set(|given, _| {
                given.cluster = true;
                Ok(())
            }),
        )
        .flag(
            "--kubeconfig",
            "FILE",
            "how to reach the cluster; default the account of the Pod",
            set(|given, value| {
                given.kubeconfig = Some(PathBuf::from(value));
                Ok(())
            }),
        )
        .flag(
            "--memory",
            "MIB",
            "memory of one evaluation; default 128",
            set(|given, value| {
                let found = value.parse::<usize>().ok().filter(|mib| (1..=4096).contains(mib));
                let expected = || format!("'{value}' is not a number of MiB from 1 to 4096");
                given.bounds.memory_bytes = found.ok_or_else(expected)? << 20;
                Ok(())
            }),
        )
        .flag(
            "--eval-timeout",
            "SECONDS",
            "longest evaluation of policies without timeoutEvalSeconds; default 2",
            set(|given, value| {
                let found = value.parse::<f64>().ok().filter(|seconds| (0.01..=30.0).contains(seconds));
                let seconds = found.ok_or(format!("'{value}' is not a number of seconds up to 30"))?;
                given.bounds.timeout = Duration::from_secs_f64(seconds);
                Ok(())
            }),
        );
    let prepared = Arc::clone(&given);
    server
        .before_serving(move || async move {
            let given = prepared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut sources = given.sources;
            if given.cluster {
                reach(&mut sources, given.kubeconfig.as_deref())?;
            } else if given.kubeconfig.is_some() {
                return Err("--kubeconfig: has an effect with --cluster only".to_owned());
            } else if sources.policies.is_empty() {
                return Err(
                    "--policies is required: a folder with documents of Kubewarden; or --cluster".to_owned()
                );
            }
            let following = sources.following.clone();
            let mut loader = Loader::new(sources, given.bounds)?;
            let loading = tokio::task::spawn_blocking(move || {
                following.inspect(|following| following.wait());
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

/// Has policies read a cluster, and come from there if no folder has any.
fn reach(sources: &mut Sources, kubeconfig: Option<&Path>) -> Result<(), String> {
    let connection = Arc::new(Connection::new(kubeconfig)?);
    sources.cluster = Some(Arc::new(Cluster::new(Arc::clone(&connection))));
    if sources.policies.is_empty() {
        sources.following = Some(Following::begin(&connection)?);
    }
    Ok(())
}

fn folder(value: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(&value);
    if path.is_dir() { Ok(path) } else { Err(format!("'{value}' is not a folder")) }
}

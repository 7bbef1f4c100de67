//! Where modules are, what their metadata says, and the compiled ones.
//!
//! Source: github.com/kubewarden/policy-evaluator src/{policy_metadata,constants}.rs, policy-fetcher src/store.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use wasmtime::Module;

use crate::documents::PolicyDocument;
use crate::engine::Clocked;
use crate::guest::{Guest, Protocol};

/// The largest public policy has 88 MB.
const MAX_MODULE_BYTES: u64 = 256 << 20;
const MAX_METADATA_BYTES: u64 = 1 << 20;

/// The custom section that `kwctl annotate` writes.
const SECTION: &[u8] = b"io.kubewarden.metadata";

const MAGIC: &[u8] = b"\0asm";
const HEADER_BYTES: usize = 8;

/// The schemes of references, which are folders in the store of kwctl.
const SCHEMES: [&str; 3] = ["registry", "https", "http"];

/// What the worker reads of a module's metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    execution_mode: Option<String>,
    #[serde(default)]
    host_capabilities: Option<BTreeSet<String>>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

/// A module that can be called, with what its metadata says.
#[derive(Debug)]
pub struct Found {
    /// For calls.
    pub guest: Guest,
    /// Of its bytes and metadata; opaque.
    pub version: u64,
    /// One line; empty if there is none.
    pub title: String,
    /// hostCapabilities; `None` if they are not stated.
    pub capabilities: Option<BTreeSet<String>>,
}

/// A file as it was: its length and when it changed.
type State = (u64, Option<SystemTime>);

/// The modules of the documents, each compiled once for as long as its file stays as it is.
#[derive(Debug)]
pub struct Modules {
    clock: Clocked,
    folders: Vec<PathBuf>,
    compiled: HashMap<PathBuf, (Vec<State>, Arc<Found>)>,
    used: BTreeSet<PathBuf>,
}

fn state(file: &Path) -> State {
    fs::metadata(file).map_or((0, None), |found| (found.len(), found.modified().ok()))
}

impl Modules {
    /// Looks for registry references below `folders`.
    pub fn new(clock: Clocked, folders: Vec<PathBuf>) -> Self {
        Self { clock, folders, compiled: HashMap::new(), used: BTreeSet::new() }
    }

    /// The files of the modules of the last load, with their metadata: those to watch.
    pub fn watched(&self) -> Vec<PathBuf> {
        self.used.iter().flat_map(|file| std::iter::once(file.clone()).chain(beside(file))).collect()
    }

    /// To be called before the documents are gone through.
    pub fn begin(&mut self) {
        self.used.clear();
    }

    /// Forgets modules that no document has any more.
    pub fn end(&mut self) {
        self.compiled.retain(|file, _| self.used.contains(file));
    }

    /// Returns the module of a document, compiled.
    pub fn get(&mut self, document: &PolicyDocument) -> Result<Arc<Found>, String> {
        let file = self.locate(document)?;
        self.used.insert(file.clone());
        let states: Vec<_> =
            std::iter::once(file.clone()).chain(beside(&file)).map(|one| state(&one)).collect();
        if let Some((before, found)) = self.compiled.get(&file)
            && *before == states
        {
            return Ok(Arc::clone(found));
        }
        let made = self.make(&file).map_err(|problem| format!("{}: {problem}", file.display()))?;
        let found = Arc::new(made);
        self.compiled.insert(file, (states, Arc::clone(&found)));
        Ok(found)
    }

    /// Returns the file of a document's module.
    fn locate(&self, document: &PolicyDocument) -> Result<PathBuf, String> {
        let reference = document.module.as_str();
        if let Some(path) = reference.strip_prefix("file:") {
            // As a URL it has slashes before an absolute path; otherwise it is relative to the document.
            let path = path.strip_prefix("//").unwrap_or(path);
            let Some(folder) =
                document.file.parent().or(Path::new(path).is_absolute().then_some(Path::new("/")))
            else {
                return Err(format!(
                    "found {reference}, expected an absolute path: a policy of a cluster is in no folder"
                ));
            };
            let file = folder.join(path);
            return if file.is_file() {
                Ok(file)
            } else {
                Err(format!("there is no file {}", file.display()))
            };
        }
        let (scheme, rest) = reference.split_once("://").unwrap_or(("registry", reference));
        let is_path = Path::new(rest).components().all(|part| matches!(part, Component::Normal(_)));
        if !SCHEMES.contains(&scheme) || !is_path || rest.is_empty() {
            return Err("expected file:PATH or a reference such as registry://HOST/PATH:TAG".to_owned());
        }
        let names: Vec<_> =
            in_store(scheme, rest).into_iter().flat_map(|name| [format!("{name}.wasm"), name]).collect();
        let places = self.folders.iter().flat_map(|folder| {
            let names = &names;
            [folder.clone(), folder.join("modules"), folder.join(scheme)]
                .into_iter()
                .flat_map(move |place| names.iter().map(move |name| place.join(name)))
        });
        places.into_iter().find(|file| file.is_file()).ok_or_else(|| {
            let folders: Vec<_> = self.folders.iter().map(|one| one.display().to_string()).collect();
            format!(
                "the worker asks no registry: it looks for {rest}.wasm below {} and in their folders modules and {scheme}",
                folders.join(", ")
            )
        })
    }

    fn make(&self, file: &Path) -> Result<Found, String> {
        let bytes = read(file, MAX_MODULE_BYTES)?;
        let (metadata, text) = metadata(file, &bytes)?;
        let mode = metadata.as_ref().and_then(|one| one.execution_mode.as_deref());
        let rego = "write its Rego as a ConstraintTemplate for the worker of Gatekeeper (workers/gatekeeper)";
        let wanted = match mode {
            Some("kubewarden-wapc") => Some(Protocol::Wapc),
            Some("wasi") => Some(Protocol::Wasi),
            Some("opa" | "gatekeeper") => {
                return Err(format!("executionMode {} is not run here: {rego}", mode.unwrap_or_default()));
            }
            Some(other) => {
                return Err(format!("executionMode: found {other}, expected kubewarden-wapc or wasi"));
            }
            None => None,
        };
        let module = Module::new(&self.clock.engine, &bytes).map_err(|error| format!("{error:#}"))?;
        if module.get_export("opa_eval_ctx_new").is_some() {
            return Err(format!("the module is compiled Rego, which is not run here: {rego}"));
        }
        // Without metadata a module shows what it is.
        let is_wapc = || module.get_export("__guest_call").is_some();
        let shown = || if is_wapc() { Protocol::Wapc } else { Protocol::Wasi };
        let guest = Guest::new(&self.clock, &module, wanted.unwrap_or_else(shown))?;
        let mut hasher = DefaultHasher::new();
        (&bytes, &text).hash(&mut hasher);
        let metadata = metadata.unwrap_or_default();
        let title = metadata.annotations.and_then(|mut all| all.remove("io.kubewarden.policy.title"));
        Ok(Found {
            guest,
            version: hasher.finish(),
            title: title.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
            capabilities: metadata.host_capabilities,
        })
    }
}

/// The paths that kwctl gives the module of a reference below the folder of its scheme.
///
/// Source: github.com/kubewarden/kubewarden-controller crates/policy-fetcher/src/{lib,store/mod}.rs.
fn in_store(scheme: &str, rest: &str) -> Vec<String> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let usual = match scheme {
        // Not a scheme whose hosts and ports have a usual form.
        "registry" => {
            let has_version = path.rsplit('/').next().is_some_and(|name| name.contains([':', '@']));
            let latest = (!has_version).then(|| format!("{rest}:latest"));
            return latest.into_iter().chain([rest.to_owned()]).collect();
        }
        "http" => ":80",
        _ => ":443",
    };
    let host = host.to_lowercase();
    vec![format!("{}/{path}", host.strip_suffix(usual).unwrap_or(&host))]
}

/// The files that may have the metadata of a module, the first that is there first.
fn beside(file: &Path) -> Vec<PathBuf> {
    let names = ["metadata.yml", "metadata.yaml"];
    let own = names.map(|name| file.with_extension(name));
    own.into_iter().chain(names.map(|name| file.with_file_name(name))).collect()
}

fn read(file: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > limit {
        return Err(format!("the file has {size} bytes, more than {limit}"));
    }
    fs::read(file).map_err(|error| error.to_string())
}

/// Returns the metadata in the module, otherwise those beside it, and their text.
fn metadata(file: &Path, module: &[u8]) -> Result<(Option<Metadata>, Vec<u8>), String> {
    if let Some(text) = section(module)? {
        let found = serde_json::from_slice(text);
        let found = found.map_err(|error| format!("section io.kubewarden.metadata: {error}"))?;
        return Ok((Some(found), text.to_vec()));
    }
    let Some(path) = beside(file).into_iter().find(|path| path.is_file()) else {
        return Ok((None, Vec::new()));
    };
    let text = read(&path, MAX_METADATA_BYTES).map_err(|problem| format!("{}: {problem}", path.display()))?;
    let found = serde_yaml_ng::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((Some(found), text))
}

/// Returns the content of the section with the metadata; `None` without one, and in the text format.
fn section(module: &[u8]) -> Result<Option<&[u8]>, String> {
    if !module.starts_with(MAGIC) {
        return Ok(None);
    }
    let mut rest = module.get(HEADER_BYTES..).unwrap_or_default();
    let broken = || "the sections of the module are cut off".to_owned();
    while let Some((id, after)) = rest.split_first() {
        let (size, after) = leb(after).ok_or_else(broken)?;
        let (content, after) = after.split_at_checked(size).ok_or_else(broken)?;
        rest = after;
        if *id == 0 {
            let (length, content) = leb(content).ok_or_else(broken)?;
            let (name, content) = content.split_at_checked(length).ok_or_else(broken)?;
            if name == SECTION {
                return Ok(Some(content));
            }
        }
    }
    Ok(None)
}

/// Reads an unsigned number of at most 32 bits (LEB128).
fn leb(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(number).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

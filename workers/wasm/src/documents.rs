//! The documents of the folders: Kubewarden's policies, and objects that stand for those of the cluster.
//!
//! Source: github.com/kubewarden/kubewarden-controller api/policies/v1/{policy,policy_settings}_types.go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The group of Kubewarden's kinds.
pub(crate) const GROUP: &str = "policies.kubewarden.io";
const VERSIONS: [&str; 2] = ["v1", "v1alpha2"];
/// The group of the gateway's own kinds, which may be in the same folder.
const GATEWAY: &str = "admission-gateway.io";

/// More than any document or object of a cluster has.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Folders in folders; a link to a parent ends here.
const MAX_LEVELS: usize = 16;

/// One YAML or JSON document.
#[derive(Clone, Debug)]
pub struct Document {
    /// File and number of the document, for messages.
    pub place: String,
    /// The file.
    pub file: PathBuf,
    /// What it has.
    pub content: Map<String, Value>,
}

/// What a policy does about a rejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Refuses.
    #[default]
    Protect,
    /// Allows, without changes.
    Monitor,
}

/// Objects that a policy may read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
}

/// Only what the worker evaluates; the gateway reads rules, selectors and the rest.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    module: String,
    #[serde(default)]
    settings: Option<Map<String, Value>>,
    #[serde(default)]
    mutating: bool,
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    context_aware_resources: Option<Vec<Resource>>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    timeout_eval_seconds: Option<u64>,
}

/// A ClusterAdmissionPolicy or an AdmissionPolicy.
#[derive(Clone, Debug)]
pub struct PolicyDocument {
    /// `NAME`, or `NAMESPACE/NAME`.
    pub name: String,
    /// Where it is, for messages.
    pub place: String,
    /// The file of the document.
    pub file: PathBuf,
    /// Where the module is.
    pub module: String,
    /// For the policy.
    pub settings: Map<String, Value>,
    /// Whether it may change objects.
    pub mutating: bool,
    /// What a rejection does.
    pub mode: Mode,
    /// What it may read of the cluster.
    pub resources: Vec<Resource>,
    /// In place of the policy's own message.
    pub message: Option<String>,
    /// Of one evaluation.
    pub timeout: Option<Duration>,
}

/// What the folders have.
#[derive(Debug, Default)]
pub struct Documents {
    /// In the order of files.
    pub policies: Vec<PolicyDocument>,
    /// Those that stand for the cluster's.
    pub objects: Vec<Value>,
}

/// Returns the files below `folders` with these endings, sorted, except hidden ones: `..data` of a volume is one.
pub fn files(folders: &[PathBuf], endings: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for folder in folders {
        walk(folder, endings, 0, &mut found)?;
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn walk(folder: &Path, endings: &[&str], level: usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            if level < MAX_LEVELS {
                walk(&path, endings, level + 1, found)?;
            }
        } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether the file describes a module, rather than having documents.
fn is_metadata(file: &Path) -> bool {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    stem == "metadata" || stem.ends_with(".metadata")
}

/// Reads all documents of `folders`. Returns all problems if there are any.
pub fn read(folders: &[PathBuf]) -> Result<Documents, Vec<String>> {
    let files = files(folders, &["yaml", "yml", "json"]).map_err(|problem| vec![problem])?;
    let (mut found, mut problems) = (Documents::default(), Vec::new());
    for file in files.iter().filter(|file| !is_metadata(file)) {
        match parse(file) {
            Ok(documents) => {
                for document in documents {
                    if let Err(problem) = sort(&document, &mut found) {
                        problems.push(format!("{}: {problem}", document.place));
                    }
                }
            }
            Err(problem) => problems.push(format!("{}: {problem}", file.display())),
        }
    }
    problems.extend(repeated(&found));
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Reads the policies of a cluster. Returns those that can be read, and all problems.
pub fn of_cluster(objects: Vec<Value>) -> (Documents, Vec<String>) {
    let (mut found, mut problems) = (Documents::default(), Vec::new());
    for object in objects {
        let metadata = &object["metadata"];
        let place = match text(metadata.get("namespace")) {
            "" => format!("{} {}", text(object.get("kind")), text(metadata.get("name"))),
            namespace => format!("{} {namespace}/{}", text(object.get("kind")), text(metadata.get("name"))),
        };
        let Value::Object(content) = object else { continue };
        if let Err(problem) =
            sort(&Document { place: place.clone(), file: PathBuf::new(), content }, &mut found)
        {
            problems.push(format!("{place}: {problem}"));
        }
    }
    (found, problems)
}

fn repeated(found: &Documents) -> Vec<String> {
    let mut names: Vec<_> = found.policies.iter().map(|one| (&one.name, &one.place)).collect();
    names.sort();
    let same = names.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    same.map(|pair| format!("{}: the policy {} is already in {}", pair[1].1, pair[1].0, pair[0].1)).collect()
}

fn parse(file: &Path) -> Result<Vec<Document>, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("the file has {size} bytes, more than {MAX_FILE_BYTES}"));
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut documents = Vec::new();
    for (index, document) in serde_yaml_ng::Deserializer::from_str(&text).enumerate() {
        let place = format!("{}:{}", file.display(), index + 1);
        let value =
            Value::deserialize(document).map_err(|error| format!("document {}: {error}", index + 1))?;
        add(place, file, value, &mut documents)?;
    }
    Ok(documents)
}

fn add(place: String, file: &Path, value: Value, documents: &mut Vec<Document>) -> Result<(), String> {
    let content = match value {
        Value::Null => return Ok(()),
        Value::Object(content) => content,
        _ => return Err(format!("{place}: a document is to be an object")),
    };
    let is_list = content.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match content.get("items") {
        Some(Value::Array(items)) if is_list => {
            for (index, item) in items.iter().enumerate() {
                add(format!("{place}.items[{index}]"), file, item.clone(), documents)?;
            }
        }
        _ => documents.push(Document { place, file: file.to_owned(), content }),
    }
    Ok(())
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn sort(document: &Document, found: &mut Documents) -> Result<(), String> {
    let (api_version, kind) = (text(document.content.get("apiVersion")), text(document.content.get("kind")));
    if api_version.is_empty() || kind.is_empty() {
        return Err("apiVersion and kind are required".to_owned());
    }
    if api_version.strip_prefix(GATEWAY).is_some_and(|rest| rest.starts_with('/')) {
        return Ok(());
    }
    let Some(version) = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')) else {
        let name = document.content.get("metadata").map(|metadata| text(metadata.get("name")));
        if name.unwrap_or_default().is_empty() {
            return Err("metadata.name is required".to_owned());
        }
        found.objects.push(Value::Object(document.content.clone()));
        return Ok(());
    };
    match kind {
        "PolicyServer" => Ok(()),
        "ClusterAdmissionPolicyGroup" | "AdmissionPolicyGroup" => Err(format!(
            "kind: found {kind}, which this worker cannot run: its expression joins several modules; write its members as \
             policies of their own"
        )),
        "ClusterAdmissionPolicy" | "AdmissionPolicy" if VERSIONS.contains(&version) => {
            found.policies.push(policy(document, kind)?);
            Ok(())
        }
        "ClusterAdmissionPolicy" | "AdmissionPolicy" => {
            Err(format!("apiVersion: found {api_version}, expected {GROUP}/v1 or {GROUP}/v1alpha2"))
        }
        _ => Err(format!("kind: found {kind}, expected ClusterAdmissionPolicy or AdmissionPolicy")),
    }
}

fn policy(document: &Document, kind: &str) -> Result<PolicyDocument, String> {
    let metadata = document.content.get("metadata").unwrap_or(&Value::Null);
    let (name, namespace) = (text(metadata.get("name")), text(metadata.get("namespace")));
    if name.is_empty() {
        return Err("metadata.name is required".to_owned());
    }
    let name = match (kind, namespace) {
        ("AdmissionPolicy", "") => return Err("metadata.namespace is required".to_owned()),
        ("AdmissionPolicy", _) => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    };
    let spec = document.content.get("spec").ok_or("spec is required")?;
    let spec = Spec::deserialize(spec).map_err(|error| format!("spec: {error}"))?;
    if spec.module.is_empty() {
        return Err("spec.module is required".to_owned());
    }
    let resources = spec.context_aware_resources.unwrap_or_default();
    if kind == "AdmissionPolicy" && !resources.is_empty() {
        // Who may write in one namespace would read all of them.
        return Err("spec.contextAwareResources: only a ClusterAdmissionPolicy has them".to_owned());
    }
    if spec.timeout_eval_seconds.is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        return Err("spec.timeoutEvalSeconds: expected 1 to 30".to_owned());
    }
    Ok(PolicyDocument {
        name,
        place: document.place.clone(),
        file: document.file.clone(),
        module: spec.module,
        settings: spec.settings.unwrap_or_default(),
        mutating: spec.mutating,
        mode: spec.mode.unwrap_or_default(),
        resources,
        message: spec.message.filter(|message| !message.is_empty()),
        timeout: spec.timeout_eval_seconds.map(Duration::from_secs),
    })
}

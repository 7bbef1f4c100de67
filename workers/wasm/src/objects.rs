//! Objects that stand for those of the cluster, which policies list and get.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::host::Wanted;
use crate::selectors::{Fields, Labels};

/// The objects of the folders, by apiVersion and kind.
#[derive(Debug, Default)]
pub struct Objects(HashMap<(String, String), Vec<Value>>);

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

impl Objects {
    /// Those of the documents.
    pub fn new(objects: Vec<Value>) -> Self {
        let mut found = HashMap::<_, Vec<_>>::new();
        for object in objects {
            let key = (text(&object, "apiVersion").to_owned(), text(&object, "kind").to_owned());
            found.entry(key).or_default().push(object);
        }
        Self(found)
    }

    fn of(&self, wanted: &Wanted) -> Result<&[Value], String> {
        if self.0.is_empty() {
            return Err("the folders of --policies have no objects that stand for the cluster's".to_owned());
        }
        let key = (wanted.api_version.clone(), wanted.kind.clone());
        Ok(self.0.get(&key).map_or(&[], Vec::as_slice))
    }

    /// One object as JSON.
    pub fn get(&self, wanted: &Wanted) -> Result<Vec<u8>, String> {
        let name = wanted.name.as_deref().unwrap_or_default();
        let found = self.of(wanted)?.iter().find(|object| {
            let metadata = &object["metadata"];
            // Without one it is an object of the cluster.
            let is_there = text(metadata, "namespace") == wanted.namespace.as_deref().unwrap_or_default();
            text(metadata, "name") == name && is_there
        });
        let found = found.ok_or_else(|| not_found(wanted))?;
        serde_json::to_vec(&masked(found, wanted)).map_err(|error| error.to_string())
    }

    /// A list as JSON, of one namespace or of all.
    pub fn list(&self, wanted: &Wanted, namespace: Option<&str>) -> Result<Vec<u8>, String> {
        let labels = Labels::parse(wanted.label_selector.as_deref().unwrap_or_default())?;
        let fields = Fields::parse(wanted.field_selector.as_deref().unwrap_or_default())?;
        let items: Vec<_> = self
            .of(wanted)?
            .iter()
            .filter(|object| {
                let is_there = namespace.is_none_or(|one| text(&object["metadata"], "namespace") == one);
                is_there && labels.matches(object) && fields.matches(object)
            })
            .map(|object| masked(object, wanted))
            .collect();
        serde_json::to_vec(&list_of(wanted, items)).map_err(|error| error.to_string())
    }
}

/// Kubewarden's text for an object that there is not.
pub(crate) fn not_found(wanted: &Wanted) -> String {
    let Wanted { api_version, kind, name, namespace, .. } = wanted;
    let name = name.as_deref().unwrap_or_default();
    format!("Cannot find {api_version}/{kind} named '{name}' inside of namespace '{namespace:?}'")
}

/// The list of these objects.
pub(crate) fn list_of(wanted: &Wanted, items: Vec<Value>) -> Value {
    json!({
        "apiVersion": wanted.api_version,
        "kind": format!("{}List", wanted.kind),
        "metadata": {"resourceVersion": ""},
        "items": items,
    })
}

/// The object with the fields of the masks alone. Metadata stay as they are.
pub(crate) fn masked(object: &Value, wanted: &Wanted) -> Value {
    let Some(masks) = wanted.field_masks.as_ref().filter(|masks| !masks.is_empty()) else {
        return object.clone();
    };
    let always = ["apiVersion", "kind", "metadata"];
    let paths: Vec<Vec<&str>> = always
        .into_iter()
        .chain(masks.iter().map(String::as_str))
        .map(|path| path.split('.').collect())
        .collect();
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    kept(object, &paths)
}

fn kept(value: &Value, paths: &[&[&str]]) -> Value {
    if paths.iter().any(|path| path.is_empty()) {
        return value.clone();
    }
    match value {
        Value::Object(members) => {
            let mut found = Map::new();
            for (key, member) in members {
                let inner: Vec<_> =
                    paths.iter().filter(|path| path[0] == key).map(|path| &path[1..]).collect();
                if !inner.is_empty() {
                    found.insert(key.clone(), kept(member, &inner));
                }
            }
            Value::Object(found)
        }
        Value::Array(items) => items.iter().map(|item| kept(item, paths)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Objects {
        let one = |namespace: &str, name: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace,
                   "labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        };
        Objects::new(vec![one("a", "x"), one("b", "x"), one("b", "y")])
    }

    fn wanted(more: Value) -> Wanted {
        let mut all = json!({"api_version": "v1", "kind": "Pod"});
        all.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        serde_json::from_value(all).expect("a request")
    }

    fn names(list: Result<Vec<u8>, String>) -> Vec<String> {
        let list: Value = serde_json::from_slice(&list.expect("a list")).expect("JSON");
        let items = list["items"].as_array().expect("items").iter();
        items
            .map(|one| format!("{}/{}", text(&one["metadata"], "namespace"), text(&one["metadata"], "name")))
            .collect()
    }

    #[test]
    fn objects_are_listed_and_found() {
        let objects = objects();
        assert_eq!(names(objects.list(&wanted(json!({})), None)), ["a/x", "b/x", "b/y"]);
        assert_eq!(names(objects.list(&wanted(json!({})), Some("b"))), ["b/x", "b/y"]);
        let selected = wanted(json!({"label_selector": "app=x", "field_selector": "metadata.namespace=b"}));
        assert_eq!(names(objects.list(&selected, None)), ["b/x"]);
        let found = objects.get(&wanted(json!({"name": "x", "namespace": "b"}))).expect("there");
        assert!(String::from_utf8(found).expect("UTF-8").contains("\"b\""));
        let problem = objects.get(&wanted(json!({"name": "z", "namespace": "b"}))).expect_err("absent");
        assert_eq!(problem, "Cannot find v1/Pod named 'z' inside of namespace 'Some(\"b\")'");
        assert!(objects.get(&wanted(json!({"name": "x"}))).is_err(), "no object of the cluster");
        let other = wanted(json!({"kind": "Node"}));
        assert!(names(objects.list(&other, None)).is_empty());
        assert!(Objects::default().list(&other, None).is_err());
    }

    #[test]
    fn masks_keep_paths_and_names() {
        let masked = wanted(json!({"name": "x", "namespace": "a", "field_masks": ["spec.containers.image"]}));
        let found: Value = serde_json::from_slice(&objects().get(&masked).expect("there")).expect("JSON");
        assert_eq!(
            found,
            json!({"apiVersion": "v1", "kind": "Pod",
                   "metadata": {"name": "x", "namespace": "a", "labels": {"app": "x"}}, "spec": {"containers": [{"image": "i"}]}})
        );
    }
}

//! Label and field selectors as text, as in the query of a list request.
//!
//! Source: kubernetes/apimachinery pkg/labels/selector.go, pkg/fields/selector.go.

use serde_json::Value;

/// One requirement of a label selector.
#[derive(Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A label selector.
#[derive(Debug, Default)]
pub(crate) struct Labels(Vec<Requirement>);

impl Labels {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = split(text).ok_or_else(|| format!("label_selector '{text}': a ) is missing"))?;
        let parsed: Result<Vec<_>, _> = parts.iter().map(|part| requirement(part.trim())).collect();
        Ok(Self(parsed.map_err(|problem| format!("label_selector '{text}': {problem}"))?))
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        let has = |key: &str, values: &[String]| {
            label(key).is_some_and(|found| values.iter().any(|one| one == found))
        };
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => has(key, values),
            Requirement::NotIn(key, values) => !has(key, values),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        })
    }
}

/// Splits at commas outside of parentheses; `None`: one is not closed.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_open) = (Vec::new(), 0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => is_open = true,
            b')' => is_open = false,
            b',' if !is_open => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    (!is_open).then_some(parts)
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let key = |text: &str| {
        let text = text.trim();
        let is_key =
            !text.is_empty() && !text.contains(|one: char| one.is_whitespace() || "()=!,".contains(one));
        if is_key { Ok(text.to_owned()) } else { Err(format!("'{part}' is no requirement")) }
    };
    let value = |text: &str| vec![text.trim().to_owned()];
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(key(left)?, value(right)));
    }
    if let Some((left, right)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(key(left)?, value(right)));
    }
    if let Some((left, right)) = part.split_once('(') {
        let values = right.trim().strip_suffix(')').ok_or_else(|| format!("'{part}' is no requirement"))?;
        let values = values.split(',').map(|one| one.trim().to_owned()).collect();
        let left = left.trim_end();
        return match left.strip_suffix(" notin") {
            Some(left) => Ok(Requirement::NotIn(key(left)?, values)),
            None => {
                let left = left.strip_suffix(" in").ok_or_else(|| format!("'{part}' is no requirement"))?;
                Ok(Requirement::In(key(left)?, values))
            }
        };
    }
    match part.strip_prefix('!') {
        Some(rest) => Ok(Requirement::Absent(key(rest)?)),
        None => Ok(Requirement::Exists(key(part)?)),
    }
}

/// A field selector: for objects in files, any path of members.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, bool, String)>);

impl Fields {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let parsed = parts.map(|part| {
            let unequal = part.split_once("!=").map(|(path, value)| (path, false, value));
            let found = unequal.or_else(|| {
                let equal = part.split_once("==").or_else(|| part.split_once('='));
                equal.map(|(path, value)| (path, true, value))
            });
            let (path, equal, value) =
                found.ok_or_else(|| format!("field_selector '{text}': '{part}' is no requirement"))?;
            Ok((path.trim().to_owned(), equal, value.trim().to_owned()))
        });
        Ok(Self(parsed.collect::<Result<_, String>>()?))
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| {
            let found = path.split('.').fold(object, |value, member| &value[member]);
            let found = match found {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (found == *wanted) == *equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_selected_as_kube_apiserver_does() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "a", "example.com/x": ""}}});
        for (text, wanted) in [
            ("", true),
            ("app=web", true),
            ("app == web,tier!=b", true),
            ("app=db", false),
            ("other!=x", true),
            ("app in (db, web),tier notin (b,c)", true),
            ("app notin (web)", false),
            ("other notin (web)", true),
            ("app,example.com/x", true),
            ("!app", false),
            ("!other", true),
            ("other", false),
            ("example.com/x=", true),
        ] {
            assert_eq!(Labels::parse(text).expect(text).matches(&object), wanted, "{text}");
        }
        for text in ["app in (a", "app in", "=x", "a b", "app on (x)", "!"] {
            assert!(Labels::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_selected_by_paths() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
        for (text, wanted) in [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("spec.replicas==2,metadata.name=a", true),
            ("spec.nodeName=", true),
            ("spec.x.y=z", false),
        ] {
            assert_eq!(Fields::parse(text).expect(text).matches(&object), wanted, "{text}");
        }
        assert!(Fields::parse("metadata.name").is_err());
    }
}

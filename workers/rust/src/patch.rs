//! Applies the explicit patch of a policy, for the calls that follow it in a chain.
//!
//! The object has to be the one that the gateway makes of the patch. It applies patches as kube-apiserver does
//! (evanphx/json-patch v4), which reads RFC 6902 loosely in places: `replace` of an absent member adds it, a
//! value that is absent is null, indices may be negative or signed, the text before the first slash is ignored.
//! The crate `json-patch` reads it strictly.

use serde_json::Value;

/// Returns the document after all operations; `None` if one of them does not apply.
pub(crate) fn apply(mut document: Value, operations: &[Value]) -> Option<Value> {
    for operation in operations {
        let path = || operation["path"].as_str();
        let value = || operation["value"].clone();
        match operation["op"].as_str()? {
            "add" => add(&mut document, path()?, value())?,
            "remove" => drop(remove(&mut document, path()?)?),
            "replace" => replace(&mut document, path()?, value())?,
            "move" => {
                let moved = remove(&mut document, operation["from"].as_str()?)?;
                add(&mut document, path()?, moved)?;
            }
            "copy" => {
                let copied = find(&document, operation["from"].as_str()?)?.clone();
                add(&mut document, path()?, copied)?;
            }
            "test" => {
                let is_whole = path()?.is_empty();
                let found = if is_whole { &document } else { find(&document, path()?)? };
                (*found == operation["value"]).then_some(())?;
            }
            _ => return None,
        }
    }
    Some(document)
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    match parent(document, path)? {
        (Value::Object(members), key) => drop(members.insert(key, value)),
        (Value::Array(items), key) => {
            let end = items.len();
            let index = if key == "-" { end } else { index(&key, end + 1)? };
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *document = Some(value).filter(|value| value.is_object() || value.is_array())?;
        return Some(());
    }
    match parent(document, path)? {
        (Value::Object(members), key) => drop(members.insert(key, value)),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            items[index] = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    match parent(document, path)? {
        (Value::Object(members), key) => members.remove(&key),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// The value at a path; null for a member that is absent from its object.
fn find<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut node = document;
    for part in parents.split('/').skip(1) {
        node = step(node, &unescaped(part))?;
    }
    match node {
        Value::Object(members) => Some(members.get(&unescaped(last)).unwrap_or(&Value::Null)),
        _ => step(node, last),
    }
}

fn step<'a>(node: &'a Value, key: &str) -> Option<&'a Value> {
    match node {
        Value::Object(members) => members.get(key),
        Value::Array(items) => items.get(index(key, items.len())?),
        _ => None,
    }
}

/// The container of the value at a path, and the last part of the path.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut node = document;
    for part in parents.split('/').skip(1) {
        node = match node {
            Value::Object(members) => members.get_mut(&unescaped(part))?,
            Value::Array(items) => {
                let index = index(part, items.len())?;
                &mut items[index]
            }
            _ => return None,
        };
    }
    Some((node, unescaped(last)))
}

/// The text of a part of a JSON Pointer (RFC 6901).
fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// An index below `length`; a negative one counts from `length`.
fn index(part: &str, length: usize) -> Option<usize> {
    let number: i64 = part.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if number < 0 { number + length } else { number };
    usize::try_from(index).ok().filter(|_| index < length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The document after one operation.
    fn after(operation: Value) -> Option<Value> {
        apply(json!({"a": {"b/c": 1}, "l": [1, 2]}), &[operation])
    }

    fn operation(op: &str, path: &str) -> Option<Value> {
        after(json!({"op": op, "path": path, "from": "/a/b~1c", "value": 9}))
    }

    #[test]
    fn operations_mean_what_they_mean_for_kube_apiserver() {
        for (op, path, wanted) in [
            ("add", "/l/1", json!({"a": {"b/c": 1}, "l": [1, 9, 2]})),
            ("add", "/l/-", json!({"a": {"b/c": 1}, "l": [1, 2, 9]})),
            ("add", "/l/-1", json!({"a": {"b/c": 1}, "l": [1, 2, 9]})),
            ("add", "/a/x", json!({"a": {"b/c": 1, "x": 9}, "l": [1, 2]})),
            ("add", "ignored/a/x", json!({"a": {"b/c": 1, "x": 9}, "l": [1, 2]})),
            ("replace", "/a/x", json!({"a": {"b/c": 1, "x": 9}, "l": [1, 2]})),
            ("replace", "/l/+0", json!({"a": {"b/c": 1}, "l": [9, 2]})),
            ("remove", "/a/b~1c", json!({"a": {}, "l": [1, 2]})),
            ("remove", "/l/-2", json!({"a": {"b/c": 1}, "l": [2]})),
            ("move", "/l/0", json!({"a": {}, "l": [1, 1, 2]})),
            ("copy", "/a/~0", json!({"a": {"b/c": 1, "~": 1}, "l": [1, 2]})),
        ] {
            assert_eq!(operation(op, path), Some(wanted), "{op} {path}");
        }
        assert_eq!(after(json!({"op": "add", "path": "/a"})).expect("applies")["a"], Value::Null);
        assert_eq!(after(json!({"op": "replace", "path": "", "value": []})), Some(json!([])));
        assert_eq!(
            after(json!({"op": "copy", "from": "/x", "path": "/a"})).expect("applies")["a"],
            Value::Null
        );
        for (path, value) in
            [("/l/1", json!(2)), ("/x", Value::Null), ("", json!({"a": {"b/c": 1}, "l": [1, 2]}))]
        {
            assert!(after(json!({"op": "test", "path": path, "value": value})).is_some(), "{path}");
        }
    }

    #[test]
    fn an_operation_that_does_not_apply_leaves_nothing() {
        for (op, path) in [
            ("add", ""),
            ("add", "x"),
            ("add", "/l/3"),
            ("add", "/l/x"),
            ("add", "/x/y"),
            ("add", "/l/0/y"),
            ("add", "/a/b~1c/y"),
            ("replace", ""),
            ("replace", "/l/2"),
            ("replace", "/l/-"),
            ("remove", "/x"),
            ("remove", "/l/-3"),
            ("move", "/a/b~1c/y"),
            ("test", "/l/0"),
            ("test", "/x/y"),
            ("merge", "/a"),
        ] {
            assert_eq!(operation(op, path), None, "{op} {path}");
        }
        for odd in [json!(null), json!({}), json!({"op": "add"}), json!({"op": "copy", "path": "/a"})] {
            assert_eq!(after(odd.clone()), None, "{odd}");
        }
    }
}

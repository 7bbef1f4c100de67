//! Two JSON documents to the JSON Patch that changes the first into the second.
//!
//! Only `add`, `remove` and `replace` with plain indices on paths that exist are written, since these mean
//! the same to every JSON Patch library. The patch is right first and short second: list items are aligned
//! by their common head and tail only, which finds what policies do (append, prepend, change in place)
//! without the cost of an edit distance. Where naming each change would make a patch that is too much work
//! to apply, whole members are replaced.
//!
//! Workers in all languages derive the same patch; `workers/conformance/admission_gateway_conformance/diff.json` says which.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::json;

/// Limit of kube-apiserver for a user's JSON Patch.
const MAX_OPERATIONS: usize = 10_000;

/// List items that change their index, summed over a patch. Ten thousand, put one by one at the
/// head of a list as long, are half of that.
const MAX_SHIFTED: usize = 100_000_000;

/// Parts of all paths of a patch: fifty for each operation.
const MAX_PATH_PARTS: usize = 500_000;

/// Levels at which whole values are compared before their parts. Each level reads
/// all that is below it; Kubernetes' own types have lists in lists three levels deep.
const SEARCHED_LEVELS: usize = 8;

/// One operation; its value is still the one in the changed document.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    op: &'static str,
    path: String,
    value: Option<&'a Value>,
}

/// The patch exceeds its bounds.
struct TooMuch;

/// Returns the operations that turn `before` into `after`; empty when they are equal.
pub(crate) fn diff<'a>(before: &Value, after: &'a Value) -> Vec<Operation<'a>> {
    let mut script = Script::default();
    match script.value("", before, after, Levels::default()) {
        Ok(()) => script.operations,
        Err(TooMuch) => replaced_members(before, after),
    }
}

/// Returns the text of a patch; empty for one without operations.
pub(crate) fn text_of(operations: &[Operation<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (position, operation) in operations.iter().enumerate() {
        out.extend_from_slice(if position == 0 { b"[{\"op\":" } else { b",{\"op\":" });
        json::write_text(operation.op, &mut out);
        out.extend_from_slice(b",\"path\":");
        json::write_text(&operation.path, &mut out);
        if let Some(value) = operation.value {
            out.extend_from_slice(b",\"value\":");
            json::write(value, &mut out);
        }
        out.push(b'}');
    }
    if !out.is_empty() {
        out.push(b']');
    }
    out
}

/// How many levels deep it is, and how many of these are lists.
#[derive(Clone, Copy, Default)]
struct Levels {
    all: usize,
    lists: usize,
}

#[derive(Default)]
struct Script<'a> {
    operations: Vec<Operation<'a>>,
    shifted: usize,
    parts: usize,
}

impl<'a> Script<'a> {
    /// Adds an operation by which `shifted` items of a list change their index.
    fn note(
        &mut self,
        op: &'static str,
        path: String,
        value: Option<&'a Value>,
        shifted: usize,
    ) -> Result<(), TooMuch> {
        self.shifted += shifted;
        self.parts += path.bytes().filter(|byte| *byte == b'/').count();
        let is_long = self.operations.len() == MAX_OPERATIONS;
        if is_long || self.shifted > MAX_SHIFTED || self.parts > MAX_PATH_PARTS {
            return Err(TooMuch);
        }
        self.operations.push(Operation { op, path, value });
        Ok(())
    }

    fn value(&mut self, path: &str, before: &Value, after: &'a Value, levels: Levels) -> Result<(), TooMuch> {
        match (before, after) {
            (Value::Object(old), Value::Object(new)) => self.object(path, old, new, levels),
            (Value::Array(old), Value::Array(new)) if levels.lists < SEARCHED_LEVELS => {
                self.array(path, old, new, levels)
            }
            _ if before != after => self.note("replace", path.to_owned(), Some(after), 0),
            _ => Ok(()),
        }
    }

    fn object(
        &mut self,
        path: &str,
        before: &Map<String, Value>,
        after: &'a Map<String, Value>,
        levels: Levels,
    ) -> Result<(), TooMuch> {
        let levels = Levels { all: levels.all + 1, ..levels };
        for (key, old, new) in members(before, after) {
            match (old, new) {
                (Some(_), None) => self.note("remove", child(path, key), None, 0)?,
                (None, new) => self.note("add", child(path, key), new, 0)?,
                (Some(old), Some(new)) => {
                    let is_looked_into = levels.all > SEARCHED_LEVELS && (old.is_object() || old.is_array());
                    if is_looked_into || old != new {
                        self.value(&child(path, key), old, new, levels)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn array(
        &mut self,
        path: &str,
        before: &[Value],
        after: &'a [Value],
        levels: Levels,
    ) -> Result<(), TooMuch> {
        let levels = Levels { all: levels.all + 1, lists: levels.lists + 1 };
        let (head, tail) = common_ends(before, after);
        let old = &before[head..before.len() - tail];
        let new = &after[head..after.len() - tail];
        let paired = old.len().min(new.len());
        for index in 0..paired {
            let path = format!("{path}/{}", head + index);
            self.value(&path, &old[index], &new[index], levels)?;
        }
        // From the end, so that earlier indices remain valid.
        for index in (paired..old.len()).rev() {
            self.note("remove", format!("{path}/{}", head + index), None, tail)?;
        }
        for (index, item) in new.iter().enumerate().skip(paired) {
            self.note("add", format!("{path}/{}", head + index), Some(item), tail)?;
        }
        Ok(())
    }
}

/// Returns how many items two lists share at their beginning, and then at their end.
pub(crate) fn common_ends(before: &[Value], after: &[Value]) -> (usize, usize) {
    let head = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    (head, tail)
}

fn replaced_members<'a>(before: &Value, after: &'a Value) -> Vec<Operation<'a>> {
    let whole = || vec![Operation { op: "replace", path: String::new(), value: Some(after) }];
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return whole();
    };
    let mut operations = Vec::new();
    for (key, old, new) in members(old, new) {
        let op = match (old, new) {
            (Some(_), None) => "remove",
            (None, _) => "add",
            _ if old == new => continue,
            _ => "replace",
        };
        operations.push(Operation { op, path: child("", key), value: new });
    }
    if operations.len() <= MAX_OPERATIONS { operations } else { whole() }
}

/// The members of two objects by key, in the order of the keys.
fn members<'b, 'a>(
    before: &'b Map<String, Value>,
    after: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'b str, Option<&'b Value>, Option<&'a Value>)>
where
    'a: 'b,
{
    let mut left = json::sorted(before).into_iter().peekable();
    let mut right = json::sorted(after).into_iter().peekable();
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return None,
        };
        let old = if order.is_le() { left.next() } else { None };
        let new = if order.is_ge() { right.next() } else { None };
        let key: &'b str = match (old, new) {
            (Some((key, _)), _) | (None, Some((key, _))) => key,
            (None, None) => return None,
        };
        Some((key, old.map(|(_, value)| value), new.map(|(_, value)| value)))
    })
}

/// The path of a member (RFC 6901).
fn child(path: &str, key: &str) -> String {
    let token = if key.contains(['~', '/']) {
        Cow::Owned(key.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(key)
    };
    format!("{path}/{token}")
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;

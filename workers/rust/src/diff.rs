//! Two JSON documents to the JSON Patch that changes the first into the second.
//!
//! Only `add`, `remove` and `replace` with plain indices on paths that exist are written, since these mean
//! the same to every JSON Patch library. The patch is right first and short second: list items are aligned
//! by their common head and tail only, which finds what policies do (append, prepend, change in place)
//! without the cost of an edit distance. Where naming each change would make a patch that is too much work
//! to apply, whole members are replaced.
//!
//! The crate `json-patch` does not bound its patch: it compares the items of a list by position, so that an
//! item at the head changes all others, and a path can be as long as the document. One hostile object then
//! gives a patch of gigabytes. The gateway would refuse a patch beyond these bounds too.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::answer::MAX_MESSAGE_BYTES;

/// Limit of kube-apiserver for a user's JSON Patch.
const MAX_OPERATIONS: usize = 10_000;

/// List items that change their index, summed over a patch. Ten thousand, put one by one at the
/// head of a list as long, are half of that.
const MAX_SHIFTED: usize = 100_000_000;

/// Parts of all paths of a patch: fifty for each operation.
const MAX_PATH_PARTS: usize = 500_000;

/// Bytes of all paths of a patch. An answer is not longer.
const MAX_PATH_BYTES: usize = MAX_MESSAGE_BYTES;

/// Levels at which values are compared as a whole before their parts, also of lists in lists. Each level reads
/// all that is below it; Kubernetes' own types have lists in lists three levels deep.
const SEARCHED_LEVELS: usize = 8;

/// One operation; its value is still the one in the changed document.
#[derive(Debug, Serialize)]
pub(crate) struct Operation<'a> {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Value>,
}

/// The patch exceeds its bounds.
struct TooMuch;

/// Returns the operations that turn `before` into `after`; empty when they are equal.
pub(crate) fn diff<'a>(before: &Value, after: &'a Value) -> Vec<Operation<'a>> {
    // Each change by itself; else whole members of the document; else the document.
    let attempt = |levels| {
        let mut script = Script { levels, ..Script::default() };
        script.value(before, after, 0, 0).ok().map(|()| script.operations)
    };
    [usize::MAX, 1, 0].into_iter().find_map(attempt).expect("one operation is within the bounds")
}

/// Returns the text of a patch; empty for one without operations.
pub(crate) fn text_of(operations: &[impl Serialize]) -> Vec<u8> {
    if operations.is_empty() {
        return Vec::new();
    }
    serde_json::to_vec(operations).expect("operations are JSON")
}

#[derive(Default)]
struct Script<'a> {
    operations: Vec<Operation<'a>>,
    /// Levels below which values are replaced whole.
    levels: usize,
    /// The path of the values that are compared.
    path: String,
    shifted: usize,
    parts: usize,
    bytes: usize,
}

impl<'a> Script<'a> {
    /// Adds an operation at the path, by which `shifted` items of a list change their index.
    fn note(&mut self, op: &'static str, value: Option<&'a Value>, shifted: usize) -> Result<(), TooMuch> {
        self.shifted += shifted;
        self.parts += self.path.bytes().filter(|byte| *byte == b'/').count();
        self.bytes += self.path.len();
        if self.operations.len() == MAX_OPERATIONS
            || self.shifted > MAX_SHIFTED
            || self.parts > MAX_PATH_PARTS
            || self.bytes > MAX_PATH_BYTES
        {
            return Err(TooMuch);
        }
        self.operations.push(Operation { op, path: self.path.clone(), value });
        Ok(())
    }

    /// Does `then` with the path of a member or an item (RFC 6901).
    fn at(&mut self, key: &str, then: impl FnOnce(&mut Self) -> Result<(), TooMuch>) -> Result<(), TooMuch> {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&match key.contains(['~', '/']) {
            true => Cow::Owned(key.replace('~', "~0").replace('/', "~1")),
            false => Cow::Borrowed(key),
        });
        let result = then(self);
        self.path.truncate(length);
        result
    }

    /// Compares two values that are `level` levels deep, of which `lists` are lists.
    fn value(&mut self, before: &Value, after: &'a Value, level: usize, lists: usize) -> Result<(), TooMuch> {
        let is_entered = level < self.levels;
        match (before, after) {
            _ if level < SEARCHED_LEVELS && before == after => Ok(()),
            (Value::Object(before), Value::Object(after)) if is_entered => {
                for (key, old) in before {
                    self.at(key, |script| match after.get(key) {
                        Some(new) => script.value(old, new, level + 1, lists),
                        None => script.note("remove", None, 0),
                    })?;
                }
                for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
                    self.at(key, |script| script.note("add", Some(new), 0))?;
                }
                Ok(())
            }
            (Value::Array(before), Value::Array(after)) if is_entered && lists < SEARCHED_LEVELS => {
                self.items(before, after, level + 1, lists + 1)
            }
            _ if before != after => self.note("replace", Some(after), 0),
            _ => Ok(()),
        }
    }

    fn items(
        &mut self,
        before: &[Value],
        after: &'a [Value],
        level: usize,
        lists: usize,
    ) -> Result<(), TooMuch> {
        let (head, tail) = common_ends(before, after);
        let (old, new) = (before.len() - tail, after.len() - tail);
        let paired = old.min(new);
        for index in head..paired {
            let (old, new) = (&before[index], &after[index]);
            self.at(&index.to_string(), |script| script.value(old, new, level, lists))?;
        }
        // From the end, so that earlier indices remain valid.
        for index in (paired..old).rev() {
            self.at(&index.to_string(), |script| script.note("remove", None, tail))?;
        }
        for (index, item) in after.iter().enumerate().take(new).skip(paired) {
            self.at(&index.to_string(), |script| script.note("add", Some(item), tail))?;
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

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;

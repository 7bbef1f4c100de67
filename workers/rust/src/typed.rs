//! Writing a typed object back into the JSON it was read from.
//!
//! A type knows some of the members only, and writes some that were not there (`status: {}`). So it is not
//! its JSON that is taken over, but what changed in it.

use serde_json::{Map, Value};

use crate::diff::common_ends;

/// Makes the change from `before` to `after` in `target`, and leaves everything else in it as it is.
pub(crate) fn carry_over(before: &Value, after: &Value, target: &mut Value) {
    if before == after {
        return;
    }
    match (before, after, target) {
        (Value::Object(old), Value::Object(new), Value::Object(target)) => members(old, new, target),
        (Value::Array(old), Value::Array(new), Value::Array(target)) if old.len() == target.len() => {
            items(old, new, target);
        }
        (_, _, target) => *target = after.clone(),
    }
}

fn members(before: &Map<String, Value>, after: &Map<String, Value>, target: &mut Map<String, Value>) {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        target.remove(key);
    }
    for (key, new) in after {
        match (before.get(key), target.get_mut(key)) {
            (Some(old), Some(target)) => carry_over(old, new, target),
            (Some(old), None) if old == new => {}
            _ => {
                target.insert(key.clone(), new.clone());
            }
        }
    }
}

fn items(before: &[Value], after: &[Value], target: &mut Vec<Value>) {
    if before.len() == after.len() {
        for ((old, new), target) in before.iter().zip(after).zip(target) {
            carry_over(old, new, target);
        }
        return;
    }
    // Items were added or taken away: those that stayed at either end keep what the type does not know.
    let (head, tail) = common_ends(before, after);
    target.splice(head..before.len() - tail, after[head..after.len() - tail].iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn carried(before: Value, after: Value, mut target: Value) -> Value {
        carry_over(&before, &after, &mut target);
        target
    }

    #[test]
    fn what_the_type_does_not_know_stays() {
        let found = carried(
            json!({"spec": {"image": "a"}, "status": {}}),
            json!({"spec": {"image": "b", "pull": "Always"}, "status": {}}),
            json!({"spec": {"image": "a", "new-in-1.40": 1.0}}),
        );
        assert_eq!(found, json!({"spec": {"image": "b", "pull": "Always", "new-in-1.40": 1.0}}));
    }

    #[test]
    fn what_it_took_away_goes() {
        let found = carried(json!({"a": 1, "b": null}), json!({"b": null}), json!({"a": 1, "c": 2}));
        assert_eq!(found, json!({"c": 2}));
    }

    #[test]
    fn items_keep_what_is_unknown_in_them() {
        let old = json!([{"n": 1}, {"n": 2}]);
        let target = json!([{"n": 1, "x": 1}, {"n": 2, "x": 2}]);
        assert_eq!(
            carried(old.clone(), json!([{"n": 1}, {"n": 3}]), target.clone()),
            json!([{"n": 1, "x": 1}, {"n": 3, "x": 2}])
        );
        assert_eq!(
            carried(old.clone(), json!([{"n": 1}, {"n": 9}, {"n": 2}]), target.clone()),
            json!([{"n": 1, "x": 1}, {"n": 9}, {"n": 2, "x": 2}])
        );
        assert_eq!(carried(old, json!([{"n": 2}]), target), json!([{"n": 2, "x": 2}]));
    }

    #[test]
    fn another_kind_of_value_is_the_new_one() {
        assert_eq!(carried(json!({"a": 1}), json!([1]), json!({"a": 1, "b": 2})), json!([1]));
        assert_eq!(carried(json!(["a", "b"]), json!(["a"]), json!("a,b")), json!(["a"]));
    }
}

//! Payloads of calls: an AdmissionRequest and its Namespace.
//!
//! A payload is parsed on first use, and once for all calls of a batch that share it. The objects, most of a
//! request, are skipped until a policy reads them. A call that changes the object leaves a payload to the calls
//! after it, which shares all the rest.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use prost::bytes::Bytes;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::denied::Malformed;
use crate::json;
use crate::patch;
use crate::review::Change;

static NULL: Value = Value::Null;

/// The members that are kept as text.
const OBJECTS: [&str; 2] = ["object", "oldObject"];

type Parsed<T = Value> = Result<T, Malformed>;

#[derive(Debug, Default)]
pub(crate) struct Payload {
    admission_request: Bytes,
    namespace_object: Bytes,
    members: OnceLock<Parsed<Members>>,
    request: OnceLock<Parsed>,
    namespace: OnceLock<Parsed>,
    /// `None` for a payload as it was sent.
    changed: Option<Changed>,
}

/// What the calls of a chain have left.
#[derive(Debug)]
struct Changed {
    /// The payload that was sent.
    sent: Arc<Payload>,
    patches: Arc<Patches>,
    /// The object behind the patches.
    object: OnceLock<Parsed>,
}

/// The patch of a call, and those of the calls before it.
#[derive(Debug)]
struct Patches {
    before: Option<Arc<Patches>>,
    last: Bytes,
    /// The length of all.
    bytes: usize,
}

/// Which of the two objects.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    New = 0,
    Old = 1,
}

impl Payload {
    pub(crate) fn new(admission_request: Bytes, namespace_object: Bytes) -> Arc<Self> {
        Arc::new(Self { admission_request, namespace_object, ..Self::default() })
    }

    /// The same version, of which nothing is parsed.
    pub(crate) fn fresh(&self) -> Arc<Self> {
        let Self { admission_request, namespace_object, .. } = self.sent();
        let sent = Self::new(admission_request.clone(), namespace_object.clone());
        match &self.changed {
            None => sent,
            Some(changed) => Self::changed(sent, Arc::clone(&changed.patches), OnceLock::new()),
        }
    }

    /// The version that a call with this patch leaves. The object is made by the patch when it is used, unless it is
    /// given.
    pub(crate) fn after(self: &Arc<Self>, patch: Bytes, object: Option<Value>) -> Arc<Self> {
        let (sent, before) = match &self.changed {
            None => (self, None),
            Some(Changed { sent, patches, .. }) => (sent, Some(Arc::clone(patches))),
        };
        let bytes = patch.len() + before.as_ref().map_or(0, |before| before.bytes);
        let patches = Arc::new(Patches { before, last: patch, bytes });
        let object = object.map_or_else(OnceLock::new, |object| OnceLock::from(Ok(object)));
        Self::changed(Arc::clone(sent), patches, object)
    }

    fn changed(sent: Arc<Self>, patches: Arc<Patches>, object: OnceLock<Parsed>) -> Arc<Self> {
        Arc::new(Self { changed: Some(Changed { sent, patches, object }), ..Self::default() })
    }

    /// The object after a change of this payload; `None` if a patch does not apply.
    pub(crate) fn object_after(&self, change: Change) -> Option<Value> {
        match change {
            Change::Object(object) => Some(object),
            Change::Patch(operations) => {
                self.object(Which::New).ok().and_then(|object| patch::apply(object.clone(), &operations))
            }
        }
    }

    /// Whether calls of a chain have changed the object.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed.is_some()
    }

    /// The payload that was sent.
    fn sent(&self) -> &Self {
        self.changed.as_ref().map_or(self, |changed| &changed.sent)
    }

    /// The length of its JSON; of a version, roughly.
    pub(crate) fn size(&self) -> usize {
        let Self { admission_request, namespace_object, .. } = self.sent();
        admission_request.len() + namespace_object.len() + self.patch_bytes()
    }

    /// The length of the patches that lead to it.
    pub(crate) fn patch_bytes(&self) -> usize {
        self.changed.as_ref().map_or(0, |changed| changed.patches.bytes)
    }

    pub(crate) fn admission_request(&self) -> &Bytes {
        &self.sent().admission_request
    }

    /// The whole request.
    pub(crate) fn request(&self) -> Result<&Map<String, Value>, Malformed> {
        let parsed = self.request.get_or_init(|| match &self.changed {
            None => decode("admission_request", &self.admission_request),
            Some(Changed { sent, .. }) => {
                let mut request = sent.request()?.clone();
                request.insert("object".to_owned(), self.object(Which::New)?.clone());
                Ok(Value::Object(request))
            }
        });
        parsed.as_ref().map(|value| value.as_object().expect("decoded as one")).map_err(Clone::clone)
    }

    /// A member of the request that is none of the objects; null where it is absent.
    pub(crate) fn member(&self, key: &str) -> Result<&Value, Malformed> {
        Ok(self.members()?.others.get(key).unwrap_or(&NULL))
    }

    /// One of the objects; null where it is absent.
    pub(crate) fn object(&self, which: Which) -> Result<&Value, Malformed> {
        if let (Which::New, Some(changed)) = (which, &self.changed) {
            return changed.object.get_or_init(|| changed.patched()).as_ref().map_err(Clone::clone);
        }
        let object = &self.members()?.objects[which as usize];
        let parse = || {
            json::parse(&self.sent().admission_request[object.place.clone()])
                .map_err(|problem| Malformed(format!("admission_request is not JSON: {problem}")))
        };
        object.value.get_or_init(parse).as_ref().map_err(Clone::clone)
    }

    /// One of the objects as a type, without its JSON in between where nobody asked for that yet.
    pub(crate) fn object_as<T: DeserializeOwned>(
        &self,
        which: Which,
    ) -> Result<serde_json::Result<T>, Malformed> {
        if let (Which::New, Some(_)) = (which, &self.changed) {
            return Ok(T::deserialize(self.object(which)?));
        }
        let object = &self.members()?.objects[which as usize];
        if object.value.get().is_none()
            && let Ok(typed) = serde_json::from_slice(&self.sent().admission_request[object.place.clone()])
        {
            return Ok(Ok(typed));
        }
        // What is wrong with it, if anything, is to be said in the same words either way.
        Ok(T::deserialize(self.object(which)?))
    }

    /// The Namespace; null where there is none.
    pub(crate) fn namespace(&self) -> Result<&Value, Malformed> {
        let sent = self.sent();
        if sent.namespace_object.is_empty() {
            return Ok(&NULL);
        }
        let parsed = sent.namespace.get_or_init(|| decode("namespace_object", &sent.namespace_object));
        parsed.as_ref().map_err(Clone::clone)
    }

    fn members(&self) -> Result<&Members, Malformed> {
        let sent = self.sent();
        let parsed = sent.members.get_or_init(|| sent.find_members());
        parsed.as_ref().map_err(Clone::clone)
    }

    fn find_members(&self) -> Parsed<Members> {
        let text = &self.admission_request[..];
        if let Ok(Found { objects, others }) = serde_json::from_slice(text) {
            let objects = objects.map(|found| found.map(|raw| Object::at(place(raw.get(), text))));
            return Ok(Members { objects: objects.map(Option::unwrap_or_default), others });
        }
        // It is malformed, which this says, or nested deeper than serde_json goes by itself.
        let mut others = self.request()?.clone();
        let objects = OBJECTS.map(|key| Object::parsed(others.remove(key).unwrap_or_default()));
        Ok(Members { objects, others })
    }
}

impl Changed {
    /// Applies the patches to the object that was sent. One that does not apply is a failure of its webhook, and
    /// changes nothing.
    fn patched(&self) -> Parsed {
        let sent = self.sent.object(Which::New)?;
        let after = |object, patch: &Bytes| match json::parse(patch) {
            Ok(Value::Array(operations)) => patch::apply(object, &operations),
            _ => None,
        };
        let mut patches: Vec<_> =
            std::iter::successors(Some(&*self.patches), |patches| patches.before.as_deref())
                .map(|patches| &patches.last)
                .collect();
        patches.reverse();
        let (mut object, mut applied) = (sent.clone(), 0);
        while let Some(patch) = patches.get(applied) {
            object = match after(object, patch) {
                Some(object) => {
                    applied += 1;
                    object
                }
                None => {
                    // It may have changed a part: once more, without it.
                    patches.remove(applied);
                    let again = patches[..applied].iter().copied();
                    again.fold(sent.clone(), |object, patch| after(object, patch).expect("as it did before"))
                }
            };
        }
        Ok(object)
    }
}

/// The members of a request.
#[derive(Debug)]
struct Members {
    objects: [Object; 2],
    others: Map<String, Value>,
}

/// One of the objects: where it is in the request, and what it is once someone asked.
#[derive(Debug)]
struct Object {
    place: Range<usize>,
    value: OnceLock<Parsed>,
}

impl Object {
    fn at(place: Range<usize>) -> Self {
        Self { place, value: OnceLock::new() }
    }

    fn parsed(value: Value) -> Self {
        Self { place: 0..0, value: OnceLock::from(Ok(value)) }
    }
}

impl Default for Object {
    fn default() -> Self {
        Self::parsed(Value::Null)
    }
}

/// Where `part` is in the text that it was taken from.
fn place(part: &str, text: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// The members of a request, as they are found in its text.
#[derive(Default)]
struct Found<'a> {
    objects: [Option<&'a RawValue>; 2],
    others: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Found<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Finder;

        impl<'de> Visitor<'de> for Finder {
            type Value = Found<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an AdmissionRequest")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Found<'de>, M::Error> {
                let mut found = Found::default();
                while let Some(key) = members.next_key::<String>()? {
                    match OBJECTS.iter().position(|object| *object == key) {
                        Some(which) => found.objects[which] = Some(members.next_value()?),
                        None => {
                            found.others.insert(key, members.next_value()?);
                        }
                    }
                }
                Ok(found)
            }
        }

        deserializer.deserialize_map(Finder)
    }
}

pub(crate) fn decode(what: &str, text: &[u8]) -> Parsed {
    match json::parse(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(value) => Err(Malformed(format!("{what} is to be a JSON object, found {}", json::kind(&value)))),
        Err(problem) => Err(Malformed(format!("{what} is not JSON: {problem}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{diff, text_of};
    use serde_json::json;

    #[test]
    fn a_version_has_the_same_object_however_it_is_made() {
        let sent = json!({"object": {"list": [0], "deep": {"a": 1}}, "oldObject": "old", "name": "web"});
        let mut version = Payload::new(sent.to_string().into(), Bytes::from("{}"));
        let mut object = sent["object"].clone();
        for step in 0..50 {
            let before = object.clone();
            object["list"].as_array_mut().expect("a list").push(step.into());
            object["deep"] = json!({format!("/~{}", step % 7): 1.0});
            version = version.after(text_of(&diff(&before, &object)).into(), Some(object.clone()));
            if step % 3 == 0 {
                let operations = json!([{"op": "add", "path": "/by", "value": step}]);
                object["by"] = step.into();
                version = version.after(operations.to_string().into(), None);
            }
            if step % 10 == 0 {
                // Its first operation applies.
                let broken = json!([{"op": "remove", "path": "/list"}, {"op": "remove", "path": "/x"}]);
                let operations = broken.as_array().expect("a list").clone();
                assert_eq!(version.object_after(Change::Patch(operations)), None);
                version = version.after(broken.to_string().into(), None);
            }
            let fresh = version.fresh();
            assert!(fresh.size() > sent.to_string().len() + 2 && fresh.size() == version.size());
            assert_eq!(fresh.object(Which::New).expect("JSON"), &object);
            assert_eq!(fresh.object(Which::Old).expect("JSON"), "old");
            assert_eq!(version.object(Which::New).expect("JSON"), &object);
            assert_eq!(fresh.request().expect("JSON")["object"], object);
            assert_eq!(fresh.request().expect("JSON")["name"], "web");
            assert_eq!(fresh.object_as::<Value>(Which::New).expect("JSON").expect("a value"), object);
        }
        let malformed = Payload::new(Bytes::from("{"), Bytes::new()).after(Bytes::from("[]"), None);
        assert!(malformed.object(Which::New).is_err() && malformed.request().is_err());
    }
}

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
    /// Set by the calls of a chain: the payload that was sent, and the present object.
    changed: Option<(Arc<Self>, Value)>,
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

    /// The payload that a call with this change leaves; unchanged if its patch does not apply.
    pub(crate) fn after(self: &Arc<Self>, change: Change) -> Arc<Self> {
        let object = match change {
            Change::Object(object) => Some(object),
            Change::Patch(operations) => {
                self.object(Which::New).ok().and_then(|object| patch::apply(object.clone(), &operations))
            }
        };
        match (object, &self.changed) {
            (None, _) => Arc::clone(self),
            (Some(object), None) => Self::changed(self, object),
            (Some(object), Some((sent, _))) => Self::changed(sent, object),
        }
    }

    fn changed(sent: &Arc<Self>, object: Value) -> Arc<Self> {
        Arc::new(Self { changed: Some((Arc::clone(sent), object)), ..Self::default() })
    }

    /// The payload that was sent.
    fn sent(&self) -> &Self {
        self.changed.as_ref().map_or(self, |(sent, _)| sent)
    }

    pub(crate) fn size(&self) -> usize {
        self.sent().admission_request.len()
    }

    pub(crate) fn admission_request(&self) -> &Bytes {
        &self.sent().admission_request
    }

    /// The whole request.
    pub(crate) fn request(&self) -> Result<&Map<String, Value>, Malformed> {
        let parsed = self.request.get_or_init(|| match &self.changed {
            None => decode("admission_request", &self.admission_request),
            Some((sent, object)) => {
                let mut request = sent.request()?.clone();
                request.insert("object".to_owned(), object.clone());
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
        if let (Which::New, Some((_, object))) = (which, &self.changed) {
            return Ok(object);
        }
        let object = &self.members()?.objects[which as usize];
        let parse = || {
            json::parse(&self.admission_request[object.place.clone()])
                .map_err(|problem| Malformed(format!("admission_request is not JSON: {problem}")))
        };
        object.value.get_or_init(parse).as_ref().map_err(Clone::clone)
    }

    /// One of the objects as a type, without its JSON in between where nobody asked for that yet.
    pub(crate) fn object_as<T: DeserializeOwned>(
        &self,
        which: Which,
    ) -> Result<serde_json::Result<T>, Malformed> {
        if let (Which::New, Some((_, object))) = (which, &self.changed) {
            return Ok(T::deserialize(object));
        }
        let object = &self.members()?.objects[which as usize];
        if object.value.get().is_none()
            && let Ok(typed) = serde_json::from_slice(&self.admission_request[object.place.clone()])
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

//! The codec of tonic, except for malformed messages and those with too many elements: they are an error of the
//! client, while tonic reports an internal error.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::parameters;
use crate::pb;
use crate::stream::MAX_IN_FLIGHT;

/// A message that the worker receives.
pub(crate) trait Incoming: Message + Default + Send + 'static {
    /// Returns which field of the message has too many elements, if one has.
    fn excess(_: &[u8]) -> Option<String> {
        None
    }
}

impl Incoming for pb::ListPoliciesRequest {}
impl Incoming for pb::CheckParametersRequest {}
impl Incoming for pb::ReviewRequest {}

/// The fields of a ReviewBatch by number, from 1, and how many elements they have at most.
const BATCH: [(&str, usize); 4] = [
    ("payloads", MAX_IN_FLIGHT),
    ("calls", 2 * MAX_IN_FLIGHT),
    ("cancelled ids", MAX_IN_FLIGHT),
    ("parameters", parameters::MAX_ID as usize),
];

const CANCELLED: u32 = 3;

impl Incoming for pb::ReviewBatch {
    /// They are counted before they are decoded: 8 MiB of empty elements would take a hundred times as much.
    fn excess(mut text: &[u8]) -> Option<String> {
        let mut counts = [0; BATCH.len()];
        while !text.is_empty() {
            // The decoder says what is wrong with the message.
            let (number, kind) = decode_key(&mut text).ok()?;
            let found = if number == CANCELLED && kind == WireType::LengthDelimited {
                let length = usize::try_from(decode_varint(&mut text).ok()?).ok()?;
                let packed = text.get(..length)?;
                text.advance(length);
                packed.iter().filter(|byte| **byte < 0x80).count()
            } else {
                skip_field(kind, number, &mut text, Default::default()).ok()?;
                1
            };
            if let Some(count) = counts.get_mut((number as usize).wrapping_sub(1)) {
                *count += found;
            }
        }
        BATCH.iter().zip(counts).find(|((_, limit), count)| count > limit).map(|((what, limit), count)| {
            format!("a ReviewBatch has {count} {what}, expected at most {limit}")
        })
    }
}

pub(crate) struct WorkerCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for WorkerCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for WorkerCodec<T, U>
where
    T: Message + Send + 'static,
    U: Incoming,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = WorkerDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        WorkerDecoder(PhantomData)
    }
}

pub(crate) struct WorkerDecoder<U>(PhantomData<U>);

impl<U: Incoming> Decoder for WorkerDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, text: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // From a slice, so that each payload is a copy: a part of the message would keep all of tonic's buffer.
        let (whole, mut copy) = (text.chunk().len() == text.remaining(), None);
        let message =
            if whole { text.chunk() } else { &copy.insert(text.copy_to_bytes(text.remaining()))[..] };
        if let Some(problem) = U::excess(message) {
            return Err(Status::invalid_argument(problem));
        }
        let decoded = U::decode(message).map(Some).map_err(|problem| {
            let name = std::any::type_name::<U>();
            let short = name.rsplit("::").next().unwrap_or(name);
            Status::invalid_argument(format!("not a {short}: {problem}"))
        });
        text.advance(text.remaining());
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_as_the_decoder_finds_them() {
        let elements = |count: usize| pb::ReviewBatch {
            payloads: vec![
                pb::Payload { admission_request: vec![b'x'; 300].into(), ..Default::default() };
                count
            ],
            calls: vec![pb::Call { id: u64::MAX, ..Default::default() }; 2 * count],
            cancelled: (0..count as u64).map(|id| id << 50).collect(),
            parameters: vec![pb::Parameters { id: 300, ..Default::default() }; count.min(256)],
        };
        assert_eq!(pb::ReviewBatch::excess(&elements(4096).encode_to_vec()), None);
        let text = "a ReviewBatch has 4097 payloads, expected at most 4096";
        assert_eq!(pb::ReviewBatch::excess(&elements(4097).encode_to_vec()).as_deref(), Some(text));
        // One by one, as a client may send them too.
        let one_by_one = [0x18, 0x81, 0x01].repeat(4097);
        assert_eq!(pb::ReviewBatch::decode(&one_by_one[..]).expect("a batch").cancelled.len(), 4097);
        let text = "a ReviewBatch has 4097 cancelled ids, expected at most 4096";
        assert_eq!(pb::ReviewBatch::excess(&one_by_one).as_deref(), Some(text));
        assert_eq!(pb::ReviewBatch::excess(&[0x0a, 0x05]), None);
    }
}

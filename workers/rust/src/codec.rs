//! The codec of tonic, except for malformed messages: they are an error of the client, while tonic reports
//! an internal error.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

pub(crate) struct WorkerCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for WorkerCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for WorkerCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
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

impl<U: Message + Default> Decoder for WorkerDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, text: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(text).map(Some).map_err(|problem| {
            let name = std::any::type_name::<U>();
            let short = name.rsplit("::").next().unwrap_or(name);
            Status::invalid_argument(format!("not a {short}: {problem}"))
        })
    }
}

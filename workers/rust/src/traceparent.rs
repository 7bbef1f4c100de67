//! W3C Trace Context.

use std::fmt;

/// Length of a traceparent of version 00.
const LENGTH: usize = 55;

/// A valid traceparent.
///
/// Source: <https://www.w3.org/TR/trace-context/#traceparent-header-field-values>.
#[derive(Clone, Copy)]
pub(crate) struct Traceparent([u8; LENGTH]);

impl Traceparent {
    /// Returns the traceparent, `None` if the text is not one.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let bytes: [u8; LENGTH] = text.try_into().ok()?;
        let is_valid = bytes.iter().enumerate().all(|(index, byte)| match index {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        let is_none = bytes.starts_with(b"ff") || is_zero(&bytes[3..35]) || is_zero(&bytes[36..52]);
        (is_valid && !is_none).then_some(Self(bytes))
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and hyphens")
    }

    pub(crate) fn trace_id(&self) -> &str {
        &self.as_str()[3..35]
    }
}

impl fmt::Debug for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_valid_or_none() {
        let found = Traceparent::parse(VALID.as_bytes()).expect("a valid one");
        assert_eq!((found.as_str(), found.trace_id()), (VALID, "0af7651916cd43dd8448eb211c80319c"));
        let zero = "0".repeat(32);
        for text in [
            "",
            "garbage",
            &VALID[1..],
            &format!("{VALID}0"),
            &VALID.to_uppercase(),
            &VALID.replace("00-", "ff-"),
            &VALID.replace('-', "\n"),
            &format!("00-{zero}{}", &VALID[35..]),
            &format!("{}{}{}", &VALID[..36], &zero[..16], &VALID[52..]),
            &"x".repeat(1 << 20),
        ] {
            assert!(Traceparent::parse(text.as_bytes()).is_none(), "{text:.80}");
        }
    }
}

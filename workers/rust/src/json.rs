//! Reading JSON: how deep it may be.

use serde_json::{Deserializer, Value};

/// Levels of nesting. As many as the gateway itself reads; serde_json by itself stops at 128, which the
/// schema of a CustomResourceDefinition can exceed.
const MAX_DEPTH: usize = 1024;

/// Parses `text`, or says in the parser's words why it is not JSON.
pub(crate) fn parse(text: &[u8]) -> Result<Value, String> {
    // A text that is UTF-8 as a whole needs no look at each string.
    let parsed = match std::str::from_utf8(text) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(text),
    };
    match parsed {
        Err(_) if depth(text) > MAX_DEPTH => Err(format!("it is nested more than {MAX_DEPTH} deep")),
        Err(_) => {
            // Wrong, or just deeper than serde_json's limit; the second look tells which.
            let mut deserializer = Deserializer::from_slice(text);
            deserializer.disable_recursion_limit();
            let value = serde::Deserialize::deserialize(&mut deserializer).map_err(|e| e.to_string())?;
            deserializer.end().map_err(|e| e.to_string())?;
            Ok(value)
        }
        Ok(value) => Ok(value),
    }
}

/// The deepest nesting in `text`, whether or not it is JSON.
fn depth(text: &[u8]) -> usize {
    let (mut deepest, mut level) = (0, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                level += 1;
                deepest = deepest.max(level);
            }
            b']' | b'}' if !quoted => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// What kind of value it is, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Vec<u8> {
        [vec![b'['; levels], vec![b']'; levels]].concat()
    }

    #[test]
    fn as_deep_as_the_gateway_reads_and_no_deeper() {
        let found = parse(&nested(MAX_DEPTH)).expect("deep enough");
        assert_eq!(found.to_string().into_bytes(), nested(MAX_DEPTH));
        assert_eq!(parse(&nested(MAX_DEPTH + 1)).unwrap_err(), "it is nested more than 1024 deep");
        assert_eq!(parse(&nested(100_000)).unwrap_err(), "it is nested more than 1024 deep");
    }

    #[test]
    fn brackets_in_texts_are_no_levels() {
        assert_eq!(depth(br#"{"a[[[":"\"{{{","b":["\\"]}"#), 2);
    }

    #[test]
    fn what_is_no_json_is_said_in_the_parsers_words() {
        assert!(parse(b"{\"a\":").unwrap_err().starts_with("EOF while parsing"));
        assert!(parse(b"{} {}").unwrap_err().starts_with("trailing characters"));
        assert!(parse(b"").is_err());
        assert!(parse(b"{\"a\":1e999}").unwrap_err().starts_with("number out of range"));
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn numbers_come_out_as_they_went_in() {
        for text in
            ["9007199254740993", "18446744073709551615", "-9223372036854775808", "0.1", "1.0", "1e+300"]
        {
            assert_eq!(parse(text.as_bytes()).expect("a number").to_string(), text);
        }
    }
}

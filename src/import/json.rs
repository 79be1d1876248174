//! JSON among other text: tools and terminals write in front of it and behind it.
//!
//! Pure. Must not know: formats.

use serde_json::Value;

/// Objects that do not begin after so many braces are none.
const TRIES: usize = 64;

/// An object, with the text since the one before.
#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) before: &'a str,
    pub(super) value: Value,
}

/// All objects of a text, in its order.
pub(super) fn objects(text: &str) -> Vec<Object<'_>> {
    let mut found = Vec::new();
    let mut from = 0;
    let mut at = 0;
    let mut tries = 0;
    while let Some(brace) = text[at..].find('{') {
        let start = at + brace;
        if let Some((value, length)) = object(&text[start..]) {
            found.push(Object {
                before: &text[from..start],
                value,
            });
            from = start + length;
            at = from;
        } else {
            at = start + 1;
            tries += 1;
            if tries > TRIES {
                break;
            }
        }
    }
    found
}

/// The object that a text begins with, and its length.
fn object(text: &str) -> Option<(Value, usize)> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = stream.next() {
        let length = stream.byte_offset();
        return (value.is_object() && value != serde_json::json!({})).then_some((value, length));
    }
    // Some versions write what is no number: each becomes null.
    let (nulled, longer) = without_nan(text)?;
    let mut stream = serde_json::Deserializer::from_str(&nulled).into_iter::<Value>();
    let value = stream.next()?.ok().filter(Value::is_object)?;
    let end = stream.byte_offset();
    let grown = longer.iter().filter(|at| **at < end).count();
    Some((value, end - grown))
}

/// Bare `nan` and `inf` as null, and where that made the text longer by one; None where there are none.
fn without_nan(text: &str) -> Option<(String, Vec<usize>)> {
    const WORDS: [&str; 4] = ["-nan", "-inf", "nan", "inf"];
    if !(text.contains("nan") || text.contains("inf")) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut longer = Vec::new();
    let mut in_string = false;
    let mut changed = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = WORDS
            .iter()
            .find(|word| !in_string && rest.starts_with(**word));
        let mut length = c.len_utf8();
        if let Some(word) = word {
            if word.len() == 3 {
                longer.push(out.len());
            }
            out.push_str("null");
            length = word.len();
            changed = true;
        } else {
            in_string ^= c == '"';
            if c == '\\' && in_string {
                length += rest[1..].chars().next().map_or(0, char::len_utf8);
            }
            out.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    changed.then_some((out, longer))
}

/// Seconds since 1970 as RFC 3339; nothing for a year that has no such form.
pub(super) fn utc(seconds: u64) -> String {
    const YEAR_10000: u64 = 253_402_300_800;
    if seconds >= YEAR_10000 {
        return String::new();
    }
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A whole number, of a number or of text.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_str()?.trim().parse().ok())
}

/// A finite number, of a number or of text.
pub(super) fn number(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .or_else(|| value.as_str()?.trim().parse().ok())
        .filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_among_text() {
        let text = "fio: terminated on signal 2\n{ \"a\": 1 }\ntrailing {no json}\n{\"b\": \"}{\"}";
        let found = objects(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].before, "fio: terminated on signal 2\n");
        assert_eq!(
            (&found[0].value["a"], &found[1].value["b"]),
            (&Value::from(1), &Value::from("}{"))
        );
    }

    #[test]
    fn what_is_no_number_is_unknown() {
        let found =
            objects("{\"mean\": nan, \"min\": -inf, \"name\": \"nan\", \"n\": 3} {\"x\": 1}");
        assert_eq!(found.len(), 2);
        let value = &found[0].value;
        assert!(value["mean"].is_null() && value["min"].is_null());
        assert_eq!(
            (&value["name"], &value["n"]),
            (&Value::from("nan"), &Value::from(3))
        );
        assert_eq!(
            (number(&value["mean"]), whole(&value["n"])),
            (None, Some(3))
        );
        assert_eq!(number(&Value::from("inf")), None);
        assert_eq!(
            (utc(1_626_851_837).as_str(), utc(u64::MAX).as_str()),
            ("2021-07-21T07:17:17Z", "")
        );
    }
}

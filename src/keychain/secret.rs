//! A secret consists of named fields, which are checked against those of its kind.

use super::error;
use super::kind::CredentialKind;
use crate::error::Failure;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::str::Chars;
use zeroize::Zeroizing;

/// This is longer than a chain of certificates.
const MOST_BYTES: usize = 64 << 10;

pub struct Secret(BTreeMap<String, Zeroizing<String>>);

impl Secret {
    /// Reads a JSON object. No error repeats any of it: a caller who swaps a name and a value has put the secret in
    /// place of a name.
    pub fn of(kind: &'static CredentialKind, json: &[u8]) -> Result<Secret, Failure> {
        let invalid = |problem: &str| error::invalid_secret(kind.name, problem);
        let Ok(fields) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(json) else {
            return Err(invalid("it is not a JSON object, or is nested too deeply"));
        };
        let names: Vec<&str> = kind.required.iter().chain(kind.optional).copied().collect();
        if fields.keys().any(|name| !names.contains(&name.as_str())) {
            return Err(invalid(&format!("it has a field that is not one of: {}", names.join(", "))));
        }
        if let Some(missing) = kind.required.iter().find(|name| !fields.contains_key(**name)) {
            return Err(invalid(&format!("field \"{missing}\" is missing")));
        }
        let mut secret = BTreeMap::new();
        for (name, value) in fields {
            let value =
                text(value.get()).ok_or_else(|| invalid(&format!("field \"{name}\" is not a text")))?;
            if value.is_empty() || value.len() > MOST_BYTES || value.contains('\0') {
                let problem = format!("field \"{name}\" is empty, has a zero byte or more than 64 kB");
                return Err(invalid(&problem));
            }
            secret.insert(name, value);
        }
        Ok(Secret(secret))
    }

    /// Returns the JSON text that is encrypted.
    pub fn json(&self) -> Zeroizing<Vec<u8>> {
        let mut json = Zeroizing::new(Vec::with_capacity(4 * MOST_BYTES));
        json.push(b'{');
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                json.push(b',');
            }
            write_text(&mut json, name);
            json.push(b':');
            write_text(&mut json, value);
        }
        json.push(b'}');
        json
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.as_str())
    }
}

/// Reads a JSON string; returns None if it is none. It is read here because a parser leaves text with escapes, such as
/// a key of several lines, in buffers that are not wiped.
fn text(json: &str) -> Option<Zeroizing<String>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    // No escape is shorter than the character that it stands for.
    let mut text = Zeroizing::new(String::with_capacity(inner.len()));
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        text.push(if character == '\\' { escaped(&mut rest)? } else { character });
    }
    Some(text)
}

/// Returns the character of an escape, or None for half of a surrogate pair, which the server does not accept.
fn escaped(rest: &mut Chars<'_>) -> Option<char> {
    Some(match rest.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let digits = rest.as_str().get(..4)?;
            rest.nth(3)?;
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
        }
        itself => itself,
    })
}

/// Writes in place: a buffer that reallocates would leave its content behind.
fn write_text(json: &mut Vec<u8>, text: &str) {
    json.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => json.extend([b'\\', byte]),
            0..0x20 => json.extend(format!("\\u{byte:04x}").bytes()),
            _ => json.push(byte),
        }
    }
    json.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::Secret;
    use crate::keychain::kind::by_name;
    use serde_json::json;

    #[test]
    fn fields_are_those_of_the_kind_and_no_error_repeats_them() {
        let password = by_name("password").unwrap();
        let of = |value: serde_json::Value| Secret::of(password, value.to_string().as_bytes());
        let good = of(json!({"password": "a\"b\\\n\u{1}ä", "username": "m"})).unwrap();
        let back = Secret::of(password, &good.json()).unwrap();
        assert_eq!([back.get("password"), back.get("username")], [Some("a\"b\\\n\u{1}ä"), Some("m")]);
        let escapes = Secret::of(password, br#"{"password": "\b\f\n\r\t\/\\\"\u00e4u"}"#).unwrap();
        assert_eq!(escapes.get("password"), Some("\u{8}\u{c}\n\r\t/\\\"\u{e4}u"));
        assert!(Secret::of(password, br#"{"password": "\ud834"}"#).is_err());
        for wrong in [
            json!("sEcret"),
            json!(["sEcret"]),
            json!({}),
            json!({"sEcret": "password"}),
            json!({"password": "sEcret", "sEcret": 1}),
            json!({"password": ["sEcret"]}),
            json!({"password": ""}),
            json!({"password": "sEcret\u{0}"}),
            json!({"password": "sEcret".repeat(20_000)}),
            json!({"username": "sEcret"}),
        ] {
            let error = of(wrong.clone()).err().map(|error| error.to_string()).unwrap();
            assert!(!error.contains("sEcret"), "{wrong}: {error}");
        }
    }
}

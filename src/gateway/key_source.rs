//! The part of a request that contains its key.

use crate::error::{Failure, invalid};

/// Segments of a path beyond this one hold no key.
const MOST_SEGMENTS: u32 = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    Header(String),
    Query(String),
    /// The number of a segment, from 1.
    Path(u32),
}

impl KeySource {
    pub fn parse(text: &str) -> Result<KeySource, Failure> {
        KeySource::read(text).ok_or_else(|| {
            invalid("key_from", format!("\"{text}\" is not a place in a request"))
                .hint("Write header:NAME, query:NAME or path:NUMBER, the number of a segment from 1.")
        })
    }

    fn read(text: &str) -> Option<KeySource> {
        let (kind, name) = text.split_once(':')?;
        let made_of = |more: &[u8]| {
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
            (!name.is_empty() && name.bytes().all(valid)).then(|| name.to_owned())
        };
        match kind {
            // nginx drops headers with an underscore.
            "header" => made_of(b"-").map(KeySource::Header),
            "query" => made_of(b"-_.").map(KeySource::Query),
            "path" => {
                let number = name.parse().ok().filter(|number| (1..=MOST_SEGMENTS).contains(number))?;
                Some(KeySource::Path(number))
            }
            _ => None,
        }
    }

    /// Returns the arguments of the Lua module `shardmaster.request`.
    pub fn as_lua(&self) -> String {
        match self {
            KeySource::Header(name) => format!("\"header\", \"{name}\""),
            KeySource::Query(name) => format!("\"query\", \"{name}\""),
            KeySource::Path(number) => format!("\"path\", {number}"),
        }
    }

    /// Returns a text for people.
    pub fn shown(&self) -> String {
        match self {
            KeySource::Header(name) => format!("header {name}"),
            KeySource::Query(name) => format!("parameter {name}"),
            KeySource::Path(number) => format!("segment {number} of the path"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_places_have_a_key() {
        assert_eq!(KeySource::read("header:X-Tenant"), Some(KeySource::Header("X-Tenant".into())));
        assert_eq!(KeySource::read("query:tenant_id"), Some(KeySource::Query("tenant_id".into())));
        assert_eq!(KeySource::read("path:2"), Some(KeySource::Path(2)));
        for bad in
            ["", "header", "header:", "header:X_Y", "query:a\"b", "path:0", "path:33", "path:x", "cookie:a"]
        {
            assert_eq!(KeySource::read(bad), None, "{bad}");
        }
    }
}
